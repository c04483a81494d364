"""After a loss the generation rises: what was read or received before counts up to what was recovered."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from prometheus_client import CollectorRegistry
from tests.support.dispatch import group
from tests.unit.session.people_in_memory import ANA, Owner, People, state

from qim_common.errors import ResyncRequired
from qim_common.ids import ConversationId, TenantId, UserId
from qim_common.telemetry.metrics import SessionMetrics
from qim_session.commands.as_read import AsRead, StatesAsRead
from qim_session.commands.listed import Entries
from qim_session.commands.mailbox import Acknowledgement, Mailbox, Outstanding
from qim_session.commands.mark_read import MarkRead, ReadMark
from qim_session.domain.cursors import NOTHING, Cursor, Raised, carried
from qim_session.storage.conversations import NONE_HIDDEN, ConversationState

A, B = group(1), group(2)


@pytest.mark.parametrize(
    ("cursor", "generation", "raised", "expected"),
    [
        pytest.param(Cursor(0, 9), 0, [], Cursor(0, 9), id="nothing was lost"),
        pytest.param(Cursor(0, 9), 1, [Raised(1, 5)], Cursor(1, 5), id="read beyond what was recovered"),
        pytest.param(Cursor(0, 4), 1, [Raised(1, 5)], Cursor(1, 4), id="read within what was recovered"),
        pytest.param(Cursor(0, 9), 1, [Raised(1, 0)], Cursor(1, 0), id="nothing was recovered"),
        pytest.param(
            Cursor(0, 9), 3, [Raised(1, 8), Raised(2, 3), Raised(3, 6)], Cursor(3, 3), id="the smallest of several"
        ),
        pytest.param(Cursor(1, 7), 3, [Raised(1, 2), Raised(3, 6)], Cursor(3, 6), id="only those after its own"),
        pytest.param(Cursor(0, 9), 2, [Raised(1, 8), Raised(3, 1)], Cursor(2, 8), id="none after the present one"),
        pytest.param(Cursor(2, 9), 1, [Raised(1, 5)], Cursor(2, 9), id="the answer is older than the cursor"),
        pytest.param(Cursor(1, 9), 1, [Raised(1, 5)], Cursor(1, 9), id="of the present one"),
    ],
)
def test_a_cursor_is_carried_to_the_present_generation(
    cursor: Cursor, generation: int, raised: list[Raised], expected: Cursor
) -> None:
    assert carried(cursor, generation, raised) == expected


class Counting(Owner):
    """A writer that counts what is unread behind a cursor, up to `upper_seq`."""

    async def states(
        self,
        tenant: TenantId,
        user: UserId,
        read: Mapping[ConversationId, int],
        *,
        with_preview: bool,
        hidden: Mapping[ConversationId, int] = NONE_HIDDEN,
    ) -> list[ConversationState]:
        found = await super().states(tenant, user, read, with_preview=with_preview, hidden=hidden)
        return [one._replace(unread_count=max(one.upper_seq - read[one.conversation], 0)) for one in found]


def lost_beyond(base: int, head: int) -> ConversationState:
    """A conversation of generation 1 that went on to `head`."""
    return state(A, upper_seq=head, newest_delivered_seq=head, readable=True, raised=(Raised(1, base),))


async def test_unread_counts_from_what_was_recovered_and_the_cursor_is_carried_for_good() -> None:
    owner, people = Counting(), People()
    owner.known = {A: lost_beyond(5, 8), B: state(B, upper_seq=3)}
    people.reads = {A: Cursor(0, 9), B: Cursor(1, 2)}
    states = StatesAsRead(people, owner)
    first = await states.of(ANA, dict(people.reads), with_preview=True)
    assert [(one.state.unread_count, one.read) for one in first] == [(3, Cursor(1, 5)), (1, Cursor(1, 2))]
    assert people.reads[A] == Cursor(1, 5)
    assert owner.calls == [2, 1], "only what is cut is asked for again"
    assert await states.of(ANA, dict(people.reads), with_preview=True) == first
    assert owner.calls == [2, 1, 2]


async def test_a_cursor_within_what_was_recovered_is_carried_without_another_question() -> None:
    owner, people = Counting(), People()
    owner.known, people.reads = {A: lost_beyond(5, 8)}, {A: Cursor(0, 4)}
    found = await StatesAsRead(people, owner).of(ANA, dict(people.reads), with_preview=False)
    assert (found[0].state.unread_count, people.reads[A], owner.calls) == (4, Cursor(1, 4), [1])


async def test_who_has_read_nothing_and_who_never_was_there_have_nothing_to_be_carried() -> None:
    owner, people = Counting(), People()
    owner.known = {A: lost_beyond(5, 8)}
    found = await StatesAsRead(people, owner).of(ANA, {A: NOTHING, B: Cursor(0, 3)}, with_preview=False)
    assert found == [AsRead(found[0].state, NOTHING), AsRead(found[1].state, Cursor(0, 3))]
    assert (found[0].state.unread_count, people.reads) == (8, {})


async def test_a_list_shows_the_cursor_as_it_was_carried() -> None:
    owner, people = Counting(), People()
    owner.known, people.reads = {A: lost_beyond(5, 8)}, {A: Cursor(0, 9)}
    entry = (await Entries(people, owner).read(ANA, [A]))[A]
    assert (entry.read_seq, entry.state.unread_count) == (5, 3)


class NothingToRebuild:
    async def ensure(self, tenant: TenantId, user: UserId) -> None:
        pass


@pytest.mark.parametrize(
    ("before", "seq", "expected"),
    [
        pytest.param(Cursor(0, 9), 2, ReadMark(5, 3), id="below what was recovered, which stays read"),
        pytest.param(Cursor(0, 9), 7, ReadMark(7, 1), id="beyond what was recovered"),
        pytest.param(Cursor(0, 9), 99, ReadMark(8, 0), id="beyond the head"),
        pytest.param(Cursor(1, 6), 2, ReadMark(6, 2), id="after the loss, only forward"),
        pytest.param(NOTHING, 2, ReadMark(2, 6), id="for the first time"),
    ],
)
async def test_a_mark_after_a_loss_starts_from_what_was_recovered(before: Cursor, seq: int, expected: ReadMark) -> None:
    owner, people = Counting(), People()
    owner.known = {A: lost_beyond(5, 8)}
    people.reads = {A: before} if before != NOTHING else {}
    mark_read = MarkRead(NothingToRebuild(), people, owner)  # type: ignore[arg-type]  # it is not the subject
    assert await mark_read(ANA, conversation=A, seq=seq) == expected
    assert people.reads[A] == Cursor(1, expected.read_seq)


async def test_a_device_of_an_older_generation_is_told_to_resynchronise_until_it_acknowledges_the_present_one() -> None:
    owner, people = Owner(), People()
    owner.known = {A: lost_beyond(5, 5)}
    people.cursors = {A: Cursor(0, 9)}
    mailbox = Mailbox(people, owner, SessionMetrics(CollectorRegistry()), max_entries=10, max_age_days=30)
    for _ in range(2):
        (outstanding,) = await mailbox.outstanding(ANA, [A])
        assert outstanding == Outstanding(A, after_seq=9, newest_delivered_seq=5, generation=1, older=True)
        with pytest.raises(ResyncRequired) as told:
            mailbox.check_generation(outstanding)
        assert told.value.metadata == {"conversation_id": A.hex(), "generation": "1", "newest_seq": "5"}
    with pytest.raises(ResyncRequired):
        await mailbox.acknowledge(ANA, [Acknowledgement(A, Cursor(0, 9))])
    await mailbox.acknowledge(ANA, [Acknowledgement(A, Cursor(1, 5))])
    assert await mailbox.outstanding(ANA, [A]) == []


async def test_a_device_is_not_told_while_there_is_nothing_that_it_could_acknowledge() -> None:
    owner, people = Owner(), People()
    owner.known = {A: lost_beyond(0, 0)}
    people.cursors = {A: Cursor(0, 9)}
    mailbox = Mailbox(people, owner, SessionMetrics(CollectorRegistry()), max_entries=10, max_age_days=30)
    assert await mailbox.outstanding(ANA, [A]) == []
