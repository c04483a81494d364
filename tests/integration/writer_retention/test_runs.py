"""RunRetention: what the next round would do, told or done at once, page after page."""

from __future__ import annotations

import pytest
from tests.integration.writer_retention.conftest import DAYS, Keeper, ago
from tests.support.chat import ANA, BEN, Chat

from qim_common.errors import PageTokenInvalid
from qim_common.identity import Principal, PrincipalKind
from qim_common.ids import ConversationId, TenantId
from qim_writer.commands import retention_run
from qim_writer.commands.retention_run import GroupRetention, RetentionPage
from qim_writer.commands.trimming import JUMP_SECONDS

pytestmark = pytest.mark.server


async def run(keeper: Keeper, principal: Principal | None = None, *, dry_run: bool = False) -> list[RetentionPage]:
    """All pages of a run."""
    pages = [await keeper.runs.page(principal or keeper.chat.operator, "", dry_run=dry_run)]
    while token := pages[-1].next_token:
        pages.append(await keeper.runs.page(principal or keeper.chat.operator, token, dry_run=dry_run))
    return pages


async def told(keeper: Keeper, *, dry_run: bool) -> dict[ConversationId, GroupRetention]:
    """The groups of a whole run, each once."""
    groups = [group for page in await run(keeper, dry_run=dry_run) for group in page.groups]
    assert len({one.group.id for one in groups}) == len(groups)
    return {one.group.id: one for one in groups}


async def test_a_dry_run_tells_what_the_run_does_and_changes_nothing(keeper: Keeper) -> None:
    old, mixed, young = [await keeper.create() for _ in range(3)]
    for_ever = await keeper.create(days=0)
    await keeper.write(old, [ago(9), ago(8)])
    await keeper.write(mixed, [ago(9), ago(8), ago(1)])
    await keeper.write(young, [ago(1)])
    await keeper.write(for_ever, [ago(900)])

    before = await keeper.stores.everything()
    would = await told(keeper, dry_run=True)
    assert await keeper.stores.everything() == before
    assert {id_: (one.floor, one.new_floor, one.messages, one.retention_days) for id_, one in would.items()} == {
        old: (0, 2, 2, DAYS),
        mixed: (0, 2, 2, DAYS),
        young: (0, 0, 0, DAYS),
    }
    assert all(one.archive_buckets == 0 for one in would.values())

    assert await told(keeper, dry_run=False) == would
    assert [await keeper.floor(group) for group in (old, mixed, young, for_ever)] == [2, 2, 0, 0]
    again = await told(keeper, dry_run=False)
    assert sorted((one.floor, one.new_floor) for one in again.values()) == [(0, 0), (2, 2), (2, 2)]
    await keeper.trim(mixed)
    assert await keeper.stored(mixed) == [3]


async def test_only_the_groups_of_the_tenant_are_told_and_touched(keeper: Keeper) -> None:
    group = await keeper.create()
    await keeper.write(group, [ago(9)])
    other = Chat(keeper.stores, tenant=TenantId(2))
    theirs = await other.create(ANA, BEN, retention_days=DAYS)
    pages = await run(keeper, Principal(PrincipalKind.OPERATOR, "ops", TenantId(2), None))
    assert [one.group.id for page in pages for one in page.groups] == [theirs]
    assert await keeper.floor(group) == 0


async def test_pages_hold_a_bounded_number_and_miss_nothing(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {await keeper.create() for _ in range(23)}
    monkeypatch.setattr(retention_run, "GROUPS_MAX", 3)
    pages = await run(keeper, dry_run=True)
    assert max(len(page.groups) for page in pages) == 3
    assert sorted(one.group.id for page in pages for one in page.groups) == sorted(made)

    monkeypatch.setattr(retention_run, "PAGE_SECONDS", -1.0)
    first = await keeper.runs.page(keeper.chat.operator, "", dry_run=True)
    assert first.groups == ()
    assert first.next_token


async def test_a_token_serves_its_caller_and_its_kind_of_run_only(
    keeper: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(5):
        await keeper.create()
    monkeypatch.setattr(retention_run, "GROUPS_MAX", 1)
    token = (await keeper.runs.page(keeper.chat.operator, "", dry_run=True)).next_token
    assert token
    elsewhere = Principal(PrincipalKind.OPERATOR, "ops", TenantId(2), None)
    somebody = Principal(PrincipalKind.OPERATOR, "olga", keeper.chat.tenant, None)
    for principal, given, dry_run in (
        (keeper.chat.operator, token, False),
        (elsewhere, token, True),
        (somebody, token, True),
        (keeper.chat.operator, "x" + token[1:], True),
        (keeper.chat.operator, "no token", True),
    ):
        with pytest.raises(PageTokenInvalid):
            await keeper.runs.page(principal, given, dry_run=dry_run)


async def test_a_clock_that_was_set_forward_moves_no_floor_and_is_told(keeper: Keeper) -> None:
    group = await keeper.create()
    await keeper.write(group, [ago(9)])
    keeper.clock.ms += int(JUMP_SECONDS * 1000) + 90_000
    (page,) = await run(keeper)
    assert page.clock_ahead == JUMP_SECONDS + 90
    assert [(one.floor, one.new_floor) for one in page.groups] == [(0, 0)]
    assert await keeper.floor(group) == 0


async def test_what_does_not_answer_is_counted_and_left_out(keeper: Keeper) -> None:
    group = await keeper.create()
    await keeper.write(group, [ago(9)])
    await keeper.stores.store.instances[0].close()
    (page,) = await run(keeper)
    assert (page.groups, page.unavailable) == ((), 4)
