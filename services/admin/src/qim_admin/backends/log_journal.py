"""The journal as structured log lines: who asked for what, and what came of it. No names of people, only how many."""

from __future__ import annotations

import logging
from uuid import UUID

from qim_admin.domain.calls import OperatorCall
from qim_common.ids import ID_BYTES

_log = logging.getLogger("qim_admin.journal")


class LogJournal:
    """`Journal` on the process's log."""

    def record(self, call: OperatorCall) -> None:
        """One line of level INFO."""
        _log.info(
            "operator call",
            extra={
                "action": call.method,
                "caller": str(call.caller),
                "tenant": call.tenant_id,
                "group": _shown(call.group_id),
                "initiator": _shown(call.initiator),
                "people": call.people,
                "detail": call.detail,
                "outcome": call.outcome,
                "version": call.version,
                "seq": call.seq,
                "changed": call.changed,
                "revision": call.revision,
            },
        )


def _shown(value: bytes) -> str:
    """A UUID; what is no id only by its length, so that a caller cannot write into the log."""
    if len(value) == ID_BYTES:
        return str(UUID(bytes=value))
    return f"({len(value)} bytes)" if value else ""
