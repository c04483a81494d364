"""The calls of `send.lua`: which sends go together, and how they are packed."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from qim_common.keys import BucketKeys
from qim_common.redis import Argument
from qim_writer.backends.redis.place import Place
from qim_writer.storage import Send

_RUN: Final = struct.Struct(">BHHI")
_MESSAGE: Final = struct.Struct(">HHIHI")
_COUNT: Final = struct.Struct(">H")
_LOW_32: Final = 0xFFFFFFFF
_NAMES_PEER: Final = 32_768


class Run:
    """The sends of one conversation in one call."""

    __slots__ = ("people", "place", "senders", "sends")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.sends: list[Waiting] = []
        self.senders: dict[bytes, int] = {}
        self.people: bytes = b""


class Waiting:
    """A send in the queue, numbered in the order of submission."""

    __slots__ = ("number", "place", "send")

    def __init__(self, number: int, place: Place, send: Send) -> None:
        self.number = number
        self.place = place
        self.send = send


class Call:
    """One script call: its keys, arguments and the sends in the order of its answers."""

    __slots__ = ("answers_for", "args", "keys")

    def __init__(self, runs: Sequence[Sequence[Run]], buckets: Sequence[BucketKeys], retention_ms: int) -> None:
        keys: list[Argument] = []
        args: list[Argument] = []
        plan = [_COUNT.pack(len(runs))]
        order: list[Waiting] = []
        for bucket, of_bucket in zip(buckets, runs, strict=True):
            keys += (bucket.meta, bucket.dispatch, bucket.memlog, *bucket.idem)
            plan.append(_COUNT.pack(len(of_bucket)))
            for run in of_bucket:
                place, sends = run.place, run.sends
                keys += place.keys_of_send()
                args.append(place.scope)
                if run.people:
                    keys.append(place.keys.grpmem)
                    args.append(run.people)
                args += run.senders
                plan.append(_RUN.pack(bool(run.people), len(sends), len(run.senders), place.segment))
                for waiting in sends:
                    send = waiting.send
                    expected, time_ms = send.expected_version, send.key.time_ms
                    plan.append(
                        _MESSAGE.pack(
                            run.senders[send.sender] + (_NAMES_PEER if send.people else 0),
                            expected >> 32,
                            expected & _LOW_32,
                            time_ms >> 32,
                            time_ms & _LOW_32,
                        )
                    )
                args += [waiting.send.key.field for waiting in sends]
                args += [waiting.send.key.digest for waiting in sends]
                args += [waiting.send.tail for waiting in sends]
                order += sends
        self.keys = keys
        self.args: list[Argument] = [b"".join(plan), retention_ms, *args]
        self.answers_for = order
