"""What this backend does not do, and how it says so."""

from __future__ import annotations

from qim_common.errors import UnsupportedByBackend


def unsupported(what: str) -> UnsupportedByBackend:
    """The refusal of a call; `what` begins the sentence and names no caller's data."""
    return UnsupportedByBackend(
        message=f"{what}: the backend scylla has no atomic step over members and messages; use redis or tiered",
        metadata={"backend": "scylla"},
    )
