"""A recovery that is interrupted, repeated, refused, or that gives up what was lost."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.integration.recovery.conftest import BUCKETS, Recovering
from tests.integration.recovery.test_rebuilt_keys import conversations_of, differing, live
from tests.support.chat import ANA, BEN, acting
from tests.support.past import PEOPLE, Past, World, keys_of, sights

from qim_common.errors import RequestTooOld
from qim_common.ids import group_conversation_id, show, uuid7
from qim_common.keys import BucketKeys
from qim_common.records import pack_record
from qim_common.recovery import Loss, RecoveryRefused
from qim_common.redis import read_fingerprint
from qim_common.redis.fence import FENCE_KEY
from qim_common.redis.fingerprint import KEY
from qim_devkit.valkey import ValkeyServer
from qim_writer.backends.redis.recovering import LOCK_KEY
from qim_writer.commands.recover.errors import ArchiveDamaged
from qim_writer.domain.archive_rounds import ArchiveRow
from qim_writer.storage import Conversation
from qim_writer.storage_archive import ArchiveHead


class Died(Exception):  # noqa: N818  it says what happened
    """A run ends here."""


def old_id() -> bytes:
    """A UUIDv7 of last week."""
    fresh = bytearray(uuid7())
    fresh[:6] = (int.from_bytes(fresh[:6], "big") - 7 * 86_400_000).to_bytes(6, "big")
    return bytes(fresh)


async def everything(world: World) -> dict[str, Any]:
    """All keys and answers of all conversations."""
    conversations = await conversations_of(world)
    keys = {conversation.hex(): await keys_of(world, conversation) for conversation in conversations}
    return keys | await sights(world, conversations)


@pytest.mark.parametrize("words", ["removed", "2 of 4", "4 of 4"])
async def test_a_run_that_ended_half_way_is_run_again(
    recovering: Recovering,
    world: World,
    past: Past,
    empty: ValkeyServer,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("qim_writer.commands.recover.recovery._PROGRESS_BUCKETS", 1)
    await live(past, world, 25)
    await recovering.archive_all(world.stores)
    before = await everything(world)

    def dies(told: str) -> None:
        if words in told:
            raise Died

    with pytest.raises(Died):
        await recovering.recover(empty, Loss.ACCEPTED, progress=dies)
    async with recovering.instance(empty) as instance:
        assert await read_fingerprint(instance) is None
        log_id = await instance.call("HGET", FENCE_KEY, "recovery")
    report = await recovering.recover(empty, Loss.ACCEPTED)

    assert report.log_id.encode() == log_id
    assert report.generation_raised
    async with recovering.world(empty) as recovered:
        after = await everything(recovered)
        for conversation in await conversations_of(recovered):
            facts = await recovered.stores.membership.facts(recovered.chat.of(conversation), ANA)
            assert facts is not None
            assert facts.generation == 1
            assert facts.raised == ((1, facts.head),)
        histories = [name for name in before if name.startswith(("history", "members", "log", "events"))]
        told = {name: before[name] for name in histories if "Page" not in repr(before[name])}
        assert differing(told, {name: after[name] for name in told}) == []


async def test_what_was_lost_is_given_up_and_its_traces_in_the_archive_never_come_back(
    recovering: Recovering, world: World, past: Past, empty: ValkeyServer, tmp_path: Any
) -> None:
    await live(past, world, 30)
    await recovering.archive_all(world.stores)
    before = {c: await keys_of(world, c) for c in await conversations_of(world)}
    for _ in range(3):
        for group in list(past.inside):
            await past.send(world, group)
            await past.come(world, group)
            await past.go(world, group)
            await past.settle(world, group)
    # The archiver had written the rows of its next round, and died before the messages.
    for group in past.inside:
        await recovering.archive.group_log.append(await world.stores.group_rows(group, recovering.tenant))

    await recovering.recover(empty, Loss.ACCEPTED)

    async with recovering.world(empty) as recovered:
        for conversation, was in before.items():
            now = await keys_of(recovered, conversation)
            head = was["msgcseq"]
            meta = was["grpmeta"] | {
                b"generation": b"1",
                b"revision": b"%d" % (int(was["grpmeta"][b"revision"]) + 1),
                b"gens": b"\0\0\0\1" + head.to_bytes(6, "big"),
            }
            assert differing(was | {"grpmeta": meta}, now) == []
        # Life goes on where the lost line went on otherwise, and the next loss is told from this one.
        later = Past(random.Random(5), inside=past.inside, outside=past.outside, owners=past.owners)  # noqa: S311
        for group in before:
            if group[0] != 2:
                continue
            members = await recovered.chat.at(group, await recovered.chat.version(group))
            facts = await recovered.stores.membership.facts(recovered.chat.of(group), ANA)
            assert facts is not None
            later.inside[group] = [person for person in PEOPLE if person in members]
            later.owners[group] = facts.policy.owner
            if facts.frozen:
                later.frozen.add(group)
        for _ in range(25):
            await later.step(recovered)
        await recovering.archive_all(recovered.stores)
        lived = await everything(recovered)
        with ValkeyServer(tmp_path / "third") as third:
            await recovering.recover(third, Loss.EXCLUDED)
            async with recovering.world(third) as again:
                assert differing(lived, await everything(again)) == []
                assert await later.repeated(again) == later.answers
        with ValkeyServer(tmp_path / "fourth") as fourth:
            await recovering.recover(fourth, Loss.ACCEPTED)
            async with recovering.world(fourth) as last:
                for conversation in before:
                    facts = await last.stores.membership.facts(last.chat.of(conversation), ANA)
                    assert facts is not None
                    assert [generation for generation, _ in facts.raised] == [1, 2]


async def test_what_only_the_instance_had_is_archived_before_it_is_rebuilt(
    recovering: Recovering, world: World, past: Past, valkey: ValkeyServer
) -> None:
    await live(past, world, 25)
    conversations = await conversations_of(world)
    before = await everything(world)
    await world.stores.call("HSET", FENCE_KEY, "fenced", "it was said so")

    with pytest.raises(RecoveryRefused, match="--accept-loss"):
        await recovering.recover(valkey, Loss.UNDECIDED)
    dry = await recovering.recover(valkey, Loss.UNDECIDED, dry_run=True)
    assert await everything(world) == before
    report = await recovering.recover(valkey, Loss.EXCLUDED)

    assert dry.waiting == report.drained > 0
    assert report.conversations == len(conversations)
    assert differing(before, await everything(world)) == []
    assert await past.repeated(world) == past.answers


async def test_a_head_that_was_noted_late_is_read_on_from(
    recovering: Recovering, world: World, empty: ValkeyServer
) -> None:
    group = await world.chat.create(ANA, BEN)
    await world.chat.send_many(30, ANA, group)
    await recovering.archive_all(world.stores)
    archive, place = recovering.archive.messages, world.chat.of(group)
    # Another installation's index of the same conversations knows of the creation only.
    late = Recovering(recovering.session, recovering.tenant, recovering.installation + "-late")
    await late.archive.messages.advance_heads([(place, ArchiveHead(0, 0))])
    assert await archive.head(place) == ArchiveHead(0, 30)

    await late.recover(empty, Loss.EXCLUDED)

    async with recovering.world(empty) as recovered:
        assert await recovered.chat.head(group) == 30


async def test_ids_from_before_the_window_are_refused_and_never_executed_anew(
    recovering: Recovering, world: World, empty: ValkeyServer
) -> None:
    group, stale = await world.chat.create(ANA, BEN), old_id()
    await world.chat.send(ANA, group, message_id=stale)
    await recovering.archive_all(world.stores)
    await recovering.recover(empty, Loss.EXCLUDED)

    async with recovering.world(empty) as recovered:
        # What the window knows is answered, however old its id is.
        assert (await recovered.chat.send(ANA, group, message_id=stale)).seq == 1
        with pytest.raises(RequestTooOld):
            await recovered.chat.send(ANA, group, message_id=old_id())
        with pytest.raises(RequestTooOld):
            await recovered.chat.add(group, PEOPLE[5], request_id=old_id())
        with pytest.raises(RequestTooOld):
            await recovered.clear(acting(BEN, recovering.tenant), old_id(), group, 1)


async def test_everybody_is_registered_again_and_times_never_fall(
    recovering: Recovering, world: World, past: Past, empty: ValkeyServer
) -> None:
    await live(past, world, 25)
    await recovering.archive_all(world.stores)
    announced = await recovering.archive.positions.of(0)
    report = await recovering.recover(empty, Loss.EXCLUDED)

    async with recovering.world(empty) as recovered:
        for conversation in await conversations_of(recovered):
            stores = recovered.stores
            bucket = stores.bucket(conversation, recovering.tenant)
            people = set(await stores.hash(stores.keys(conversation, recovering.tenant).grpcur))
            scope = stores.store.place(recovering.tenant, conversation).scope
            entries = [fields[1] for _, fields in await stores.call("XRANGE", bucket.memlog, "-", "+")]
            listed = [entry[26:] for entry in entries if entry.startswith(scope)]
            assert {part[at : at + 16] for part in listed for at in range(0, len(part), 16)} == people
        now = await recovering.archive.positions.of(0)
        assert {one.log_id for one in now.values()} == {report.log_id}
        for bucket_number in range(BUCKETS):
            keys = BucketKeys(bucket_number)
            info = await recovered.stores.call("XINFO", "STREAM", keys.dispatch)
            end = dict(zip(info[::2], info[1::2], strict=True))[b"last-generated-id"].decode()
            assert str(now[bucket_number].position) == end
            assert bucket_number not in announced or now[bucket_number].position > announced[bucket_number].position
            assert await recovered.stores.call("HGET", keys.meta, "arch") == end.encode()
        fingerprint = await read_fingerprint(recovered.stores.store.instances[0])
        assert fingerprint is not None
        assert set(fingerprint.replaces) == {one.log_id for one in announced.values()}
        assert fingerprint.log_id == report.log_id


async def test_other_keys_of_the_server_stay(
    recovering: Recovering, world: World, past: Past, empty: ValkeyServer
) -> None:
    await live(past, world, 5)
    await recovering.archive_all(world.stores)
    others = ("7:{u001}:aa:convs", "{u001}:checkpoints", "something{b001}", "{b004}:meta", "7:{b009}:aa:grpmeta")
    async with recovering.instance(empty) as instance:
        for key in others:
            await instance.call("SET", key, "mine")
        await instance.call("SET", "{b003}:hot", "an old one")
        await instance.call("SET", "7:{b002}:aa:grpmeta", "an old one")
        report = await recovering.recover(empty, Loss.EXCLUDED)
        assert report.removed == 2
        for key in others:
            assert await instance.call("GET", key) == b"mine"


async def test_an_instance_that_is_not_fenced_is_left_alone(
    recovering: Recovering, world: World, past: Past, valkey: ValkeyServer
) -> None:
    await live(past, world, 3)
    await recovering.archive_all(world.stores)
    kept = await world.stores.everything()
    with pytest.raises(RecoveryRefused, match="nothing to recover"):
        await recovering.recover(valkey, Loss.ACCEPTED)
    after = await world.stores.everything()
    after.pop(FENCE_KEY.encode(), None)
    assert after == kept


async def test_a_server_that_nobody_knows_is_left_to_the_services(recovering: Recovering, empty: ValkeyServer) -> None:
    with pytest.raises(RecoveryRefused, match="begin by themselves"):
        await recovering.recover(empty, Loss.ACCEPTED)


async def test_at_the_level_archived_nothing_need_be_said_about_loss(
    recovering: Recovering, world: World, past: Past, empty: ValkeyServer
) -> None:
    await live(past, world, 5)
    await recovering.archive_all(world.stores)
    recovering.ack_level = "archived"
    report = await recovering.recover(empty, Loss.UNDECIDED)
    assert report.done
    assert not report.generation_raised


async def test_a_long_line_comes_back_with_its_sender_column(
    recovering: Recovering, world: World, empty: ValkeyServer
) -> None:
    group = await world.chat.create(ANA, BEN)
    for _ in range(65):
        await world.chat.send_many(1024, ANA, group)
    await world.chat.send_many(10, BEN, group)
    await recovering.archive_all(world.stores)
    before = await keys_of(world, group)
    await recovering.recover(empty, Loss.EXCLUDED)

    async with recovering.world(empty) as recovered:
        assert len(before["msgsnd"]) == 2
        assert await keys_of(recovered, group) == before
        assert (await recovered.chat.send(ANA, group)).seq == 66_571


async def test_two_runs_at_once_are_one_after_another(
    recovering: Recovering, world: World, past: Past, empty: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await live(past, world, 3)
    await recovering.archive_all(world.stores)
    monkeypatch.setattr("qim_writer.commands.recover.lock.LOCK_WAIT_SECONDS", 0.0)
    async with recovering.instance(empty) as instance:
        await instance.call("SET", LOCK_KEY, "somebody else", "PX", 60_000)
        with pytest.raises(RecoveryRefused, match="another recovery of this instance is running"):
            await recovering.recover(empty, Loss.EXCLUDED)
        assert await instance.call("DBSIZE") == 1
        await instance.call("DEL", LOCK_KEY)
        assert (await recovering.recover(empty, Loss.EXCLUDED)).done
        assert await instance.call("EXISTS", LOCK_KEY) == 0


async def test_a_server_at_another_place_is_never_touched(
    recovering: Recovering, world: World, past: Past, valkey: ValkeyServer
) -> None:
    await live(past, world, 3)
    await recovering.archive_all(world.stores)
    await world.stores.call("HSET", KEY, "position", 1)
    await world.stores.call("HSET", FENCE_KEY, "fenced", "it was said so")
    kept = await world.stores.everything()
    with pytest.raises(RecoveryRefused, match="position is 1 on the instance and 0 in the configuration"):
        await recovering.recover(valkey, Loss.ACCEPTED)
    assert await world.stores.everything() == kept


async def test_an_archive_without_the_creation_of_a_conversation_ends_the_run(
    recovering: Recovering, empty: ValkeyServer
) -> None:
    place = Conversation(recovering.tenant, group_conversation_id(uuid7()))
    await recovering.archive.messages.advance_heads([(place, ArchiveHead(0, 1))])
    with pytest.raises(ArchiveDamaged, match=r"no row of its creation.*--accept-loss"):
        await recovering.recover(empty, Loss.EXCLUDED)


async def test_a_conversation_that_is_damaged_in_the_archive_is_left_out_of_an_accepted_loss(
    recovering: Recovering, world: World, empty: ValkeyServer
) -> None:
    damaged, whole = await world.chat.create(ANA, BEN), await world.chat.create(ANA, BEN)
    for group in (damaged, whole):
        await world.chat.send(ANA, group)
    await recovering.archive_all(world.stores)
    place = world.chat.of(damaged)
    (record,) = await recovering.archive.messages.page(place, 1, 1, 1)
    stranger = record._replace(time_ms=record.time_ms + 1, tail=record.tail._replace(sender=PEOPLE[7]))
    await recovering.archive.messages.append(place, [ArchiveRow(1, pack_record(stranger))])

    with pytest.raises(ArchiveDamaged, match=rf"{show(damaged)}.*the sender of seq 1"):
        await recovering.recover(empty, Loss.EXCLUDED)
    report = await recovering.recover(empty, Loss.ACCEPTED)

    (left_out,) = report.left_out
    assert show(damaged) in left_out
    async with recovering.world(empty) as recovered:
        assert await recovered.chat.read(BEN, whole) == [1]
        assert await recovered.stores.call("KEYS", f"*{damaged.hex()}*") == []
