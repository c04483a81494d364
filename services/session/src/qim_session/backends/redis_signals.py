"""The stream `usig` of one session instance, on a connection of its own."""

from __future__ import annotations

from typing import Any, Final

from qim_common.keys import usig
from qim_common.positions import LOG_START, Position
from qim_common.redis import Argument, Instance, ReplyError
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
        (reply,) = await self._instance.pipeline([("XINFO", "STREAM", self._key)])
        return _end(_facts(reply))

    async def read(self, after: Position, *, count: int, block_ms: int) -> SignalRead:
        """As `SignalLog.read`; in a stream that went back, or away, it goes on at the end of what is there now.

        What the stream holds is asked for behind each read, in one step with it: no stall can come between them.
        """
        read: list[Argument] = ["XREAD", "COUNT", count, "BLOCK", block_ms, "STREAMS", self._key, str(after)]
        found, reply = await self._instance.pipeline([read, ("XINFO", "STREAM", self._key)])
        if isinstance(found, Exception):
            raise found
        facts = _facts(reply)
        lost = not _holds(facts, after)
        if not found:
            return SignalRead((), _end(facts) if lost else after, lost)
        ((_, items),) = found
        signals = []
        for entry_id, fields in items:
            if fields[0] != SIGNAL_FIELD:
                raise ValueError(f"signal {entry_id!r} has the field {fields[0]!r}")
            signals.append(Signal.unpack(fields[1]))
        return SignalRead(signals, Position.parse(items[-1][0]), lost)


def _facts(reply: Any) -> dict[bytes, Any]:
    """What XINFO says; nothing of a stream that is not there."""
    if isinstance(reply, ReplyError) and reply.message == _NO_SUCH_KEY:
        return {}
    if isinstance(reply, Exception):
        raise reply
    return dict(zip(reply[::2], reply[1::2], strict=True))


def _end(facts: dict[bytes, Any]) -> Position:
    return Position.parse(facts[b"last-generated-id"]) if facts else LOG_START


def _holds(facts: dict[bytes, Any], after: Position) -> bool:
    """Whether every entry after `after` is there, or was when they were read a moment ago."""
    end = _end(facts)
    if end <= after:
        return end == after
    trimmed = facts[b"entries-added"] > facts[b"length"]
    first = facts[b"first-entry"]
    return not trimmed or (first is not None and Position.parse(first[0]).before() <= after)
