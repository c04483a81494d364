"""A suite on Redis and Cassandra whose parts may be broken, and what its stores hold below the services."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, Literal

import redis.asyncio
from tests.model.reader import outcome
from tests.model.world import TENANT, World
from tests.support.account import Account
from tests.support.cassandra import opened, settings_of
from tests.support.chorus import Chorus
from tests.support.command_lines import run_program
from tests.support.ledger import NOT_NOW_REASONS, Ledger
from tests.support.valkey import require_valkey

from qim_client.values import Message
from qim_common.cassandra import CassandraSession
from qim_common.ids import ConversationId, UserId, group_conversation_id, uuid7
from qim_common.keys import BucketKeys, ConversationKeys, unflushed
from qim_common.topology import Topology
from qim_devkit.cassandra import CassandraCluster
from qim_devkit.suite import Suite
from qim_devkit.tiered import shared_keyspace
from qim_writer.backends.cassandra.archive import CassandraArchive
from qim_writer.storage import Conversation

BUCKETS: Final = 16
"""Commit buckets of these suites: few, so that each has entries."""

SETTLE_SECONDS: Final = 90.0
HEAL_SECONDS: Final = 300.0
"""For each node, which starts while there is load."""

_HEALER: Final = ThreadPoolExecutor(1)
"""A node ends with the thread that started it (qim_devkit.tether), and this one lives as long as the process."""

PAGE: Final = 1000


class Stage:
    """The running suite, its clients, and ways to break it."""

    def __init__(self, world: World, cluster: CassandraCluster, session: CassandraSession) -> None:
        self.world = world
        self.suite = world.suite
        self.cluster = cluster
        self.archive = CassandraArchive(session, installation_id="tests", buckets=BUCKETS)
        self.topology = Topology(self.suite.valkey_addresses, BUCKETS, "tests")
        self._seed = 0
        self._instances: list[Any] = [
            redis.asyncio.Redis(host=host, port=int(port), protocol=2, socket_timeout=5)
            for host, _, port in (str(address).rpartition(":") for address in self.topology.addresses)
        ]

    def ledger(self, groups: int = 6, **options: Any) -> Ledger:
        """Accounts of people of their own; each scenario has another seed, the same in every run."""
        self._seed += 1
        return Ledger(self.world, self._new_groups(groups), seed=self._seed, **options)

    def chorus(self, groups: int = 4, **options: Any) -> Chorus:
        """Groups of their own."""
        return Chorus(self.world, self._new_groups(groups), **options)

    def _new_groups(self, count: int) -> list[ConversationId]:
        """Ids, in turn on each of the Valkeys."""
        names, found = self.suite.valkey_names, list[ConversationId]()
        while len(found) < count:
            group = group_conversation_id(ConversationId(uuid7()))
            if self.on(names[len(found) % len(names)], [group]):
                found.append(group)
        return found

    async def close(self) -> None:
        """Close the connections to the stores."""
        for instance in self._instances:
            await instance.aclose()

    async def crash(self, name: str) -> None:
        """kill -9 of a service or a Valkey, and its start."""
        await self.suite.kill(name)
        await self.suite.restart(name)

    async def wipe(self, name: str) -> None:
        """A Valkey is killed and loses its disk; it starts empty."""
        await self.suite.kill(name)
        shutil.rmtree(self.suite.paths.valkey(name))
        await self.suite.restart(name)

    @contextlib.contextmanager
    def standing_still(self, *names: str) -> Iterator[None]:
        """These services and Valkeys do not run (SIGSTOP) inside of the context, as on a machine that hangs."""
        pids = [self.suite.pid(name) for name in names]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    async def killed_nodes(self, *numbers: int) -> None:
        """kill -9 of these Cassandra nodes, from 0; `healed` brings them back."""
        for number in numbers:
            await asyncio.to_thread(self.cluster.nodes[number].kill)

    def paused_nodes(self, *numbers: int) -> None:
        """These Cassandra nodes do not run (SIGSTOP); `healed` lets them go on."""
        for number in numbers:
            self.cluster.nodes[number].pause()

    async def healed(self) -> None:
        """All nodes serve."""
        await asyncio.get_running_loop().run_in_executor(_HEALER, self.cluster.heal, HEAL_SECONDS)

    async def mended(self) -> None:
        """Everything runs again."""
        await self.healed()
        for name in (*self.suite.valkey_names, *self.suite.service_names):
            if not self.suite.running(name):
                await self.suite.restart(name)

    async def fields(self, *names: str) -> list[list[int]]:
        """These counters of every bucket's `meta`."""
        rows = []
        for bucket in range(BUCKETS):
            instance = self._instances[self.topology.instance_of(bucket)]
            values = await instance.hmget(BucketKeys(bucket).meta, names)
            rows.append([int(value or 0) for value in values])
        return rows

    async def backlog(self) -> int:
        """How many messages and state entries are recorded, and not archived."""
        return sum(recorded - archived for recorded, archived in await self.fields("rec", "arcd"))

    async def drained_below(self, most: int) -> None:
        """Waits until the backlog is smaller."""
        async with asyncio.timeout(SETTLE_SECONDS):
            while await self.backlog() >= most:  # noqa: ASYNC110  archivers tell nobody
                await asyncio.sleep(0.05)

    async def archived_up_to_now(self) -> None:
        """Waits until the archive has what is committed at this moment, while more comes."""
        now = [recorded for (recorded,) in await self.fields("rec")]
        async with asyncio.timeout(SETTLE_SECONDS):
            while any(archived < wanted for (archived,), wanted in zip(await self.fields("arcd"), now, strict=True)):  # noqa: ASYNC110  archivers tell nobody
                await asyncio.sleep(0.05)

    async def drained(self) -> None:
        """Waits until everything that was committed is in the archive."""
        async with asyncio.timeout(SETTLE_SECONDS):
            while await self.backlog():  # noqa: ASYNC110  archivers tell nobody
                await asyncio.sleep(0.05)

    async def marks_are_written(self) -> None:
        """Waits until what people have read and their devices have acknowledged is in Cassandra too."""
        async with asyncio.timeout(SETTLE_SECONDS):
            for position, instance in enumerate(self._instances):
                while await instance.hlen(unflushed(position)):  # noqa: ASYNC110  written every second
                    await asyncio.sleep(0.05)

    async def archived_heads(self, conversations: Iterable[ConversationId]) -> dict[ConversationId, int]:
        """Up to which seq their instances know each of them to be archived."""
        heads = {}
        for conversation in conversations:
            bucket = self.topology.conversation_bucket(TENANT, conversation)
            keys = ConversationKeys(TENANT, conversation, bucket)
            instance = self._instances[self.topology.instance_of(bucket)]
            heads[conversation] = int(await instance.hget(keys.grpmeta, "aseq") or 0)
        return heads

    async def recover(self, name: str, *options: str) -> Any:
        """`qimctl recover` of a Valkey, as an operator runs it; its report."""
        position = self.suite.valkey_names.index(name)
        ended = await run_program(
            *("qimctl", "--output", "json", "recover", "--instance", str(position), "--yes", *options),
            environment=self.suite.environment("writer") | {"QIM_CONFIG": str(self.suite.paths.client_config)},
        )
        assert ended.code == 0, ended.err
        return ended.json

    async def line(self, conversation: ConversationId, who: UserId) -> tuple[int, int]:
        """Generation and head of a conversation, as a present member is told."""
        told = await self.world.person(who).get_visible_range(conversation)
        return told.generation, told.head_seq

    async def archive_holds(self, histories: Mapping[ConversationId, Sequence[Message]]) -> None:
        """What the archive has of these conversations is their history, each seq once; both from seq 1 on."""
        for group, history in histories.items():
            conversation = Conversation(TENANT, group)
            held: list[tuple[int, bytes, bytes]] = []
            for first in range(1, len(history) + 1, PAGE):
                page = await self.archive.page(conversation, first, first + PAGE - 1, PAGE)
                held += [(record.seq, record.tail.client_message_id, record.tail.body) for record in page]
            wanted = [(message.seq, message.client_message_id, message.body) for message in history]
            assert held == sorted(wanted)
            beyond = await self.archive.page(conversation, len(history) + 1, len(history) + PAGE, PAGE)
            assert beyond == [], "the archive has what nobody was told of"

    async def check(self, ledger: Ledger, *choruses: Chorus) -> None:
        """Everybody is told what was acknowledged, and the archive holds it."""
        await ledger.check()
        for chorus in choruses:
            await chorus.check()
            await self.drained()
            await self.archive_holds(await chorus.histories())

    async def serves(self, conversation: ConversationId, who: UserId) -> None:
        """Waits until the writer answers for this conversation again."""
        async with asyncio.timeout(SETTLE_SECONDS):
            while isinstance(told := await outcome(self.world.person(who).get_visible_range(conversation)), str):
                assert told in NOT_NOW_REASONS
                await asyncio.sleep(0.05)  # the writer connects again by itself

    async def refuses(self, conversation: ConversationId, chorus: Chorus, reason: str) -> None:
        """Waits until the writer has met the instance again, and refuses a message for this reason."""
        async with asyncio.timeout(SETTLE_SECONDS):
            while (told := await chorus.refusal_in(conversation)) != reason:
                assert told == "BACKEND_UNAVAILABLE"
                await asyncio.sleep(0.05)  # the writer connects again by itself

    def accounts_on(self, name: str, ledger: Ledger) -> list[Account]:
        """Those whose conversations a Valkey holds."""
        wanted = set(self.on(name, [account.lane.group for account in ledger.accounts]))
        return [account for account in ledger.accounts if account.lane.group in wanted]

    async def given_up(self, account: Account, archived: int) -> None:
        """A loss was accepted: nothing of the archive is missing, and what is left had been so at some moment."""
        group, pair = account.lane.group, account.model.pair
        if pair:
            generation, head = await self.line(group, pair[0])
            revision = (await self.world.person(pair[0]).get_conversation(group)).revision - 1
        else:
            details = await self.world.operators["operator"].get_group(group)
            head, revision = details.head_seq, details.revision - 1
            generation, _ = await self.line(group, details.owner) if details.owner else (1, head)
        assert generation == 1
        assert head >= archived
        account.fold_again(head, revision)

    def on(self, name: str, conversations: Iterable[ConversationId]) -> list[ConversationId]:
        """Which of these conversations a Valkey holds."""
        position = self.suite.valkey_names.index(name)
        return [
            conversation
            for conversation in conversations
            if self.topology.instance_of(self.topology.conversation_bucket(TENANT, conversation)) == position
        ]


@asynccontextmanager
async def stage(
    directory: Path, cluster: CassandraCluster, *, ack_level: Literal["log", "archived"], archivers: int = 2, **env: str
) -> AsyncIterator[Stage]:
    """A suite of two Valkeys on this cluster, whose tables are made where they are missing."""
    require_valkey()
    keyspace = shared_keyspace()
    async with AsyncExitStack() as stack:
        suite = Suite(
            directory,
            valkeys=2,
            tenants=(TENANT,),
            backend="tiered",
            cassandra=cluster,
            keyspace=keyspace,
            archivers=archivers,
            ack_level=ack_level,
            env_overrides={"QIM_COMMIT_BUCKETS": str(BUCKETS), "QIM_CASSANDRA_TIMEOUT_SECONDS": "20", **env},
        )
        await stack.enter_async_context(suite)
        world = World(suite)
        stack.push_async_callback(world.close)
        await stack.enter_async_context(world.live)
        session = await stack.enter_async_context(opened(settings_of(cluster, keyspace=keyspace)))
        running = Stage(world, cluster, session)
        stack.push_async_callback(running.close)
        yield running
