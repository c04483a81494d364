"""The stream `usig` of one session instance, on a connection of its own."""

from __future__ import annotations

from typing import Any, Final

from qim_common.keys import usig
from qim_common.redis import Argument, Instance, ReplyError
from qim_session.domain.position import LOG_START, Position
from qim_session.domain.signals import SIGNAL_FIELD, Signal
from qim_session.storage.live import SignalRead

_NO_SUCH_KEY: Final = "ERR no such key"


class RedisSignalLog:
    """The `SignalLog` of one session instance.

    Args:
        instance: a connection of its own, because a blocking read holds up everything behind it.
    """

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._key = usig(instance.position)

    async def end(self) -> Position:
        """As `SignalLog.end`."""
        facts = await self._facts()
        return Position.parse(facts[b"last-generated-id"]) if facts else LOG_START

    async def holds(self, after: Position) -> bool:
        """As `SignalLog.holds`; a stream that went back, or away, does not hold what comes after."""
        facts = await self._facts()
        if not facts:
            return after == LOG_START
        if Position.parse(facts[b"last-generated-id"]) < after:
            return False
        trimmed = facts[b"entries-added"] > facts[b"length"]
        first = facts[b"first-entry"]
        return not trimmed or (first is not None and Position.parse(first[0]) <= after)

    async def read(self, after: Position, *, count: int, block_ms: int) -> SignalRead:
        """As `SignalLog.read`."""
        read: list[Argument] = ["XREAD", "COUNT", count, "BLOCK", block_ms, "STREAMS", self._key, str(after)]
        found = await self._instance.call(*read)
        if not found:
            return SignalRead((), after)
        ((_, items),) = found
        signals = []
        for entry_id, fields in items:
            if fields[0] != SIGNAL_FIELD:
                raise ValueError(f"signal {entry_id!r} has the field {fields[0]!r}")
            signals.append(Signal.unpack(fields[1]))
        return SignalRead(signals, Position.parse(items[-1][0]))

    async def _facts(self) -> dict[bytes, Any]:
        try:
            reply = await self._instance.call("XINFO", "STREAM", self._key)
        except ReplyError as error:
            if error.message == _NO_SUCH_KEY:
                return {}
            raise
        return dict(zip(reply[::2], reply[1::2], strict=True))
