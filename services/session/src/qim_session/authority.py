"""Where what people have, have read and have set lasts: which backend does it, and what works on it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from qim_common.cassandra import CassandraLink, CassandraSettings
from qim_common.config import SessionSettings, load
from qim_common.redis import Instance
from qim_common.telemetry.metrics import SessionMetrics, cassandra_metrics
from qim_common.topology import Topology
from qim_session.backends import cassandra_marks, cassandra_sets
from qim_session.backends.redis_marks import RedisMarkRestore, RedisUnflushedMarks
from qim_session.backends.redis_people import RedisPeople
from qim_session.commands.restore_marks import RestoreMarks
from qim_session.commands.write_behind import MarkFlusher
from qim_session.storage.projection import ConversationSets


@dataclass(frozen=True, slots=True)
class Authority:
    """What the service keeps people's conversations, cursors and flags in.

    Attributes:
        sets: of conversations.
        restore_marks: brings cursors and flags back; None: the session store alone has them.
        flushers: write them behind, one for each session instance.
    """

    sets: ConversationSets
    restore_marks: RestoreMarks | None = None
    flushers: Sequence[MarkFlusher] = ()


def open_authority(
    settings: SessionSettings,
    stack: AsyncExitStack,
    *,
    people: RedisPeople,
    stores: Sequence[Instance],
    sessions: Topology,
    metrics: SessionMetrics,
) -> Authority:
    """That of the configured backend.

    With `tiered` it is Cassandra, which need not answer: registering and writing behind wait for it then, and who has
    to be rebuilt gets BACKEND_UNAVAILABLE. With `redis` it is the session store itself.
    """
    if settings.backend != "tiered":
        return Authority(people)
    statements = (*cassandra_sets.STATEMENTS, *cassandra_marks.STATEMENTS)
    link = CassandraLink(load(CassandraSettings), cassandra_metrics(), component="session", statements=statements)
    link.start()
    stack.push_async_callback(link.close)
    marks = cassandra_marks.CassandraMarks(link)
    return Authority(
        cassandra_sets.CassandraConversationSets(link),
        RestoreMarks(marks, RedisMarkRestore(stores, sessions)),
        [
            MarkFlusher(
                RedisUnflushedMarks(store), marks, metrics, instance=store.position, partitions=sessions.buckets
            )
            for store in stores
        ],
    )
