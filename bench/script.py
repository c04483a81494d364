"""The send script alone: calls made by the writer's own group commit, recorded, and then played to one Valkey.

So the instance gets exactly the bytes that the writer would send, while the cost of making them is left out. Over 200
groups and in one hot group: batched as in the writer (256 sends a call, two calls in flight), and message by message
with as many sends in flight.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from bench.redis_load import RedisFigures, replay
from bench.rig import BODY_BYTES, TENANT
from qim_common.errors import BackendUnavailable, QimError
from qim_common.idempotency import IdempotencyKey
from qim_common.identity import Actor
from qim_common.ids import ConversationId, DeviceId, UserId, uuid7
from qim_common.redis import Argument, Connection, Instance, ScriptLoader
from qim_common.topology import Topology
from qim_devkit.valkey import ValkeyServer
from qim_writer.backends.redis.group_commit import CALL_SENDS, CALLS_IN_FLIGHT, RedisCommitLog
from qim_writer.backends.redis.membership import RedisMembershipStore
from qim_writer.backends.redis.store import SCRIPTS, RedisStore
from qim_writer.commands.send import prepare_send
from qim_writer.domain.policy import GroupSettings, Limits, Policy
from qim_writer.storage import Conversation, Send

MEMBERS: Final = 10
HOT_MESSAGES_MAX: Final = 120_000
"""In one group: the recorded calls name the sender column's first two segments, which hold 131,072 seqs."""

_BUCKETS: Final = 256
_RETENTION_MS: Final = 86_400_000
_ANSWER_BYTES: Final = 23


class Recorder(Instance):
    """Keeps the calls that a group commit writes, and answers each as an instance that is down."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1:1", name="recorder", instance_position=0)
        self.calls: list[tuple[Argument, ...]] = []
        self._more = asyncio.Event()

    def call(self, *args: Argument) -> asyncio.Future[Any]:
        """See `Instance.call`."""
        self.calls.append(args)
        self._more.set()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_exception(BackendUnavailable())
        return future

    async def recorded(self, calls: int) -> None:
        """Return when there are so many calls."""
        while len(self.calls) < calls:
            self._more.clear()
            await self._more.wait()


class _Nobody:
    """A sink for outcomes that nobody reads; satisfies `SendSink`."""

    expired = False

    def committed(self, index: int, seq: int, time_ms: int, version: int, generation: int) -> None:
        """See `SendSink`."""

    def refused(self, index: int, error: QimError) -> None:
        """See `SendSink`."""


@dataclass(frozen=True, slots=True)
class Group:
    """A group that exists, and its members."""

    id: ConversationId
    users: tuple[UserId, ...]


async def script(messages: int) -> list[RedisFigures]:
    """Measures all ways, about so many messages each. Raises ValkeyStartError, ReplyError, BackendUnavailable."""
    figures = []
    with ValkeyServer() as server:
        topology = Topology((server.address,), _BUCKETS, "bench")
        instance = Instance(server.address, name="bench", instance_position=0)
        instance.on_connected.append(ScriptLoader(SCRIPTS))
        await instance.start()
        try:
            for groups in (200, 1):
                for per_call, in_flight in ((CALL_SENDS, CALLS_IN_FLIGHT), (1, CALL_SENDS * CALLS_IN_FLIGHT)):
                    # New groups each time: what an earlier way has left behind is the same for all of its keys.
                    made = [
                        await _create(RedisStore([instance], topology, retention_ms=_RETENTION_MS))
                        for _ in range(groups)
                    ]
                    count = min(messages, HOT_MESSAGES_MAX) // CALL_SENDS * CALL_SENDS
                    calls = await record(_sends(made, count), topology, per_call)
                    name = f"{'200 groups' if groups > 1 else 'one group'}, {per_call} a call"
                    figures.append(await _play(instance.connection, name, calls, per_call, in_flight))
        finally:
            await instance.close()
    return figures


async def _play(
    connection: Connection, name: str, calls: Sequence[tuple[Argument, ...]], per_call: int, in_flight: int
) -> RedisFigures:
    figures, replies = await replay(connection, name, [[call] for call in calls], per_call, in_flight)
    for reply in replies:
        statuses = reply[::_ANSWER_BYTES]
        assert len(statuses) == per_call, "a send has no answer"
        assert not any(statuses), f"a send was refused with status {max(statuses)}"
    return figures


async def record(sends: Sequence[Send], topology: Topology, per_call: int) -> list[tuple[Argument, ...]]:
    """The script calls that the writer's group commit makes of these sends, `per_call` (1 or 256) in each."""
    recorder = Recorder()
    log = RedisCommitLog(RedisStore([recorder], topology, retention_ms=_RETENTION_MS))
    step = per_call * CALLS_IN_FLIGHT if per_call == CALL_SENDS else per_call
    for first in range(0, len(sends), step):
        expected = (min(first + step, len(sends)) + per_call - 1) // per_call
        log.submit(sends[first : first + step])
        await recorder.recorded(expected)
    return recorder.calls


def _sends(groups: Sequence[Group], count: int) -> list[Send]:
    choose = random.Random(7)  # noqa: S311  no secret
    sink = _Nobody()
    sends = []
    for index in range(count):
        group = choose.choice(groups)
        user = choose.choice(group.users)
        sends.append(
            prepare_send(
                Actor(TENANT, user, DeviceId(user)),
                conversation_id=group.id,
                peer=b"",
                message_id=uuid7(),
                custom_type="",
                record_type=0,
                body=choose.randbytes(BODY_BYTES),
                expected_version=0,
                max_bytes=BODY_BYTES,
                sink=sink,
                index=index,
            )
        )
    return sends


async def _create(store: RedisStore) -> Group:
    users = tuple(UserId(uuid7()) for _ in range(MEMBERS))
    group = ConversationId(b"\x02" + uuid7()[1:])
    limits = Limits()
    policy = Policy(settings=GroupSettings(member_limit=limits.member_limit).validated(limits), owner=users[0])
    key = IdempotencyKey(os.urandom(16), os.urandom(8), 0)
    await RedisMembershipStore(store).create(Conversation(TENANT, group), users, policy, key, big=False)
    return Group(group, users)
