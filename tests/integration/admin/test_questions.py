"""ExplainVisibility and GroupTimeline through to the real writer."""

from __future__ import annotations

import pytest
from tests.support.writers import until

from qim_client import GatewayClient, LeaverHistory, OperatorClient, SeqRange, TimelinePage
from qim_client.names import user_id
from qim_common import errors
from qim_common.ids import ConversationId, MembershipOp, TenantId, UserId, show
from qim_common.records import StateChange

pytestmark = pytest.mark.server

TENANT = TenantId(1)
ANA, BEN, CARA, DORA = (user_id(name) for name in ("ana", "ben", "cara", "dora"))


async def new_group(gateway: GatewayClient, *members: UserId, messages: int = 0) -> ConversationId:
    ana = gateway.as_actor(TENANT, ANA)
    group = (await ana.create_group(members)).group
    for number in range(messages):
        await ana.send_to(group, b"%d" % number)
    return group


async def test_a_decision_comes_as_a_sentence_and_as_fields(gateway: GatewayClient, operator: OperatorClient) -> None:
    group = await new_group(gateway, BEN, messages=3)
    await operator.remove_members(group, [BEN], leaver_history=LeaverHistory.NONE)
    found = await operator.explain_visibility(group, BEN, 2)
    assert (found.visible, found.delivered, found.cause) == (False, True, "revoked")
    assert found.sentence.startswith("Hidden: ")
    assert found.stay is not None
    assert (found.stay.joined_at, found.stay.left_at, found.stay.revoked) == (0, 4, True)
    never = await operator.explain_visibility(group, DORA, 2)
    assert (never.visible, never.delivered, never.cause, never.stay) == (False, False, "never_member", None)


async def test_clear_points_and_the_floor_are_told(gateway: GatewayClient, operator: OperatorClient) -> None:
    group = await new_group(gateway, BEN, messages=4)
    await gateway.as_actor(TENANT, BEN).clear_history(group, up_to_seq=3)
    await operator.clear_group_history(group, up_to_seq=1)
    causes = [(await operator.explain_visibility(group, BEN, seq)).cause for seq in (1, 2, 4, 5)]
    assert causes == ["floor", "own_clear", "in_stay", "not_yet"]
    found = await operator.explain_visibility(group, BEN, 2)
    assert (found.own_clear_seq, found.group_floor_seq) == (3, 1)


async def test_the_line_has_events_and_changes_with_who_made_them(
    gateway: GatewayClient, operator: OperatorClient, backend: OperatorClient
) -> None:
    group = await new_group(gateway, BEN, messages=1)
    await backend.add_members(group, [CARA], initiator=ANA)
    await gateway.as_actor(TENANT, ANA).transfer_ownership(group, BEN)
    await operator.freeze_group(group)
    page = await operator.group_timeline(group)
    assert [(change.version, change.op, change.seq, change.people, change.actor) for change in page.changes] == [
        (2, MembershipOp.JOIN, 2, (CARA,), ANA)
    ]
    made = [(entry.kind, entry.made_by, entry.head_seq) for entry in page.state_entries if entry.kind.value > 1]
    assert made == [
        (StateChange.OWNER, f"user:{show(ANA)}", 2),
        (StateChange.FROZEN, "operator:dev-operator", 2),
    ]
    assert (page.state_entries[-1].owner, page.state_entries[-1].frozen) == (BEN, True)
    assert (page.group.head_seq, page.stays, page.visible) == (2, (), ())


async def test_one_persons_part_has_their_events_stays_and_what_they_may_read(
    gateway: GatewayClient, operator: OperatorClient
) -> None:
    group = await new_group(gateway, BEN, CARA, messages=2)
    await operator.remove_members(group, [CARA])
    await operator.remove_members(group, [BEN])
    await operator.add_members(group, [BEN])
    await gateway.as_actor(TENANT, BEN).clear_history(group, up_to_seq=1)
    pages = [page async for page in operator.timeline_pages(group, user=BEN)]
    assert [change.seq for page in pages for change in page.changes] == [4, 5]
    assert [(stay.joined_at, stay.left_at) for stay in pages[-1].stays] == [(0, 4), (4, 0)]
    assert (pages[-1].visible, pages[-1].own_clear_seq) == ((SeqRange(5, 5),), 1)
    (nobody,) = [page async for page in operator.timeline_pages(group, user=DORA)]
    assert (nobody.changes, nobody.stays, nobody.visible) == ((), (), ())


async def test_the_line_comes_page_by_page_and_nothing_twice(gateway: GatewayClient, operator: OperatorClient) -> None:
    group = await new_group(gateway)
    for _ in range(2):
        await operator.add_members(group, [BEN])
        await operator.remove_members(group, [BEN])
        await operator.freeze_group(group, frozen=False)
    seqs, revisions, token = [], [], ""
    while True:
        page = await operator.group_timeline(group, page_size=1, page_token=token)
        seqs += [change.seq for change in page.changes]
        revisions += [entry.revision for entry in page.state_entries]
        if not (token := page.next_page_token):
            break
    assert seqs == [1, 2, 3, 4]
    assert revisions == sorted(set(revisions))
    with pytest.raises(errors.PageTokenInvalid):
        await operator.group_timeline(group, page_size=1, page_token="forged")


async def test_events_whose_record_was_removed_are_there_without_people(
    gateway: GatewayClient, operator: OperatorClient
) -> None:
    group = await new_group(gateway)
    await operator.add_members(group, [BEN])
    await operator.clear_group_history(group)

    async def removed() -> bool:
        return (await operator.group_timeline(group)).changes[0].op is None

    await until(removed)
    (change,) = (await operator.group_timeline(group)).changes
    assert (change.version, change.seq, change.people, change.actor) == (2, 1, (), None)
    assert _stays(await operator.group_timeline(group, user=BEN)) == [(0, 0)]


async def test_a_page_with_very_many_people_is_cut_and_complete(
    gateway: GatewayClient, operator: OperatorClient
) -> None:
    group = await new_group(gateway)
    people = [UserId(number.to_bytes(16, "big")) for number in range(1, 1001)]
    for _ in range(51):
        await operator.add_members(group, people)
        await operator.remove_members(group, people)
    pages = [page async for page in operator.timeline_pages(group)]
    assert len(pages) > 1
    assert [change.seq for page in pages for change in page.changes] == list(range(1, 103))


def _stays(page: TimelinePage) -> list[tuple[int, int]]:
    return [(stay.joined_at, stay.left_at) for stay in page.stays]
