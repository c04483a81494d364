"""From dispatch entries to who might be told of what (design.md invariant 4).

Only ordinary messages are pushed, to the members at the version that they were committed with, without their senders.
Several messages of one conversation make one candidate a person. Groups above `projection_fanout_max_members` are not
gone through person by person (docs/push.md says why).
"""

from __future__ import annotations

import itertools
import logging
import struct
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from qim_common.errors import MembershipVersionExpired
from qim_common.ids import ConversationId, TenantId, UserId, show
from qim_common.records import BlockFlags, DispatchItem, MessageBlock, RecordType, unpack_blocks
from qim_common.telemetry.metrics import PushMetrics
from qim_session.commands.audience import Audiences
from qim_session.domain.folding import DispatchEntry
from qim_session.domain.membership import read_control_body
from qim_session.domain.push import Candidate, PushedMessage
from qim_session.storage.push import MessageContents, Recipient

_log = logging.getLogger(__name__)
_Key = TypeVar("_Key")

READERS_MAX: Final = 3
"""How many people are asked for at most to find a large message that somebody may still read."""

Topic = tuple[TenantId, ConversationId]


@dataclass(slots=True)
class Gathered:
    """What some entries bring. `topics`: big groups, where those are wanted."""

    people: dict[Recipient, Candidate] = field(default_factory=dict)
    topics: dict[Topic, Candidate] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.people) + len(self.topics)


class Gatherer:
    """Goes through dispatch entries. Of one conversation by one caller at a time, in commit order.

    Args:
        topics: big groups become topics; else they are left out.
    """

    def __init__(
        self, audiences: Audiences, contents: MessageContents, metrics: PushMetrics, *, topics: bool = False
    ) -> None:
        self._audiences = audiences
        self._contents = contents
        self._metrics = metrics
        self._topics = topics

    def forget(self) -> None:
        """Forget who is in which conversation."""
        self._audiences.forget()

    async def add(self, entry: DispatchEntry, oldest_ms: int, gathered: Gathered) -> None:
        """Add what an entry brings; messages that were committed before `oldest_ms` are left out.

        An entry that cannot be read is passed over, logged and counted: nothing reads it better later.

        Raises BackendUnavailable: some of it may have been added.
        """
        try:
            blocks = list(unpack_blocks(entry.data))
        except (ValueError, struct.error, KeyError, IndexError):
            self._metrics.entries_unreadable.inc()
            _log.exception("a dispatch entry cannot be read", extra={"position": str(entry.position)})
            return
        for block in blocks:
            if isinstance(block, MessageBlock):
                await self._add_block(block, entry.position.ms, oldest_ms, gathered)

    async def _add_block(self, block: MessageBlock, time_ms: int, oldest_ms: int, gathered: Gathered) -> None:
        self._follow(block)
        ordinary = [item for item in block.items if item.type is RecordType.ORDINARY]
        if not ordinary:
            return
        big = BlockFlags.BIG in block.flags
        if time_ms < oldest_ms or (big and not self._topics):
            self._metrics.left_out.labels("big_group" if big else "expired").inc(len(ordinary))
            return
        if big:
            # Nobody's members are loaded: a message that is not in the log goes without its sender and type.
            topic = (block.tenant, block.conversation)
            newest = _inlined(block, ordinary[-1], time_ms) or _nameless(block, ordinary[-1], time_ms)
            _merge(gathered.topics, topic, replace(newest, count=len(ordinary)))
            return
        try:
            members = await self._audiences.members(block.tenant, block.conversation, block.version)
            messages = [await self._whole(block, item, time_ms, members) for item in ordinary]
        except MembershipVersionExpired:
            self._metrics.audiences_unresolved.inc()
            _log.error(
                "the members at a version are gone, nobody is told of its messages",
                extra={"conversation": show(block.conversation), "version": block.version, "seq": ordinary[0].seq},
            )
            return
        for user, candidate in candidates([message for message in messages if message is not None], members).items():
            _merge(gathered.people, Recipient(block.tenant, user, block.conversation), candidate)

    def _follow(self, block: MessageBlock) -> None:
        for item in block.items:
            if item.type is not RecordType.CONTROL or item.tail is None:
                continue
            try:
                change = read_control_body(block.version, item.seq, item.tail.body)
            except ValueError:
                _log.exception("a membership event cannot be read", extra={"conversation": show(block.conversation)})
            else:
                self._audiences.follow(block.tenant, block.conversation, change)

    async def _whole(
        self, block: MessageBlock, item: DispatchItem, time_ms: int, members: Collection[UserId]
    ) -> Candidate | None:
        if item.tail is not None:
            return _inlined(block, item, time_ms)
        for reader in list(itertools.islice(members, READERS_MAX)):
            found = await self._contents.read(block.tenant, block.conversation, item.seq, reader)
            if found is not None:
                return _candidate(block, item, time_ms, found.sender, found.custom_type, found.body)
        self._metrics.left_out.labels("unreadable").inc()
        return None


def candidates(messages: Sequence[Candidate], members: Collection[UserId]) -> dict[UserId, Candidate]:
    """What messages of one version, in commit order, bring to each member: the newest of others, and how many."""
    if not messages:
        return {}
    own = Counter(one.message.sender for one in messages)
    everything = replace(messages[-1], count=len(messages))
    found = dict.fromkeys((user for user in members if user not in own), everything)
    for user in own.keys() & set(members):
        others = [one for one in messages if one.message.sender != user]
        if others:
            found[user] = replace(others[-1], count=len(others))
    return found


def _inlined(block: MessageBlock, item: DispatchItem, time_ms: int) -> Candidate | None:
    tail = item.tail
    return None if tail is None else _candidate(block, item, time_ms, tail.sender, tail.custom_type, tail.body)


def _nameless(block: MessageBlock, item: DispatchItem, time_ms: int) -> Candidate:
    return _candidate(block, item, time_ms, UserId(bytes(16)), "", b"")


def _candidate(
    block: MessageBlock, item: DispatchItem, time_ms: int, sender: UserId, custom_type: str, body: bytes
) -> Candidate:
    return Candidate(PushedMessage(block.generation, item.seq, time_ms, sender, custom_type, len(body)), body)


def _merge(into: dict[_Key, Candidate], key: _Key, later: Candidate) -> None:
    earlier = into.get(key)
    into[key] = later if earlier is None else earlier.then(later)
