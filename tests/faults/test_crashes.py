"""kill -9 under load: nothing acknowledged is missing, nothing is there twice, no seq is used again.

The clients repeat what was not acknowledged with the same ids, as gateways do.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.support.load import PATIENT, Load, load
from tests.support.refusals import refusal
from tests.support.writer_methods import SERVED
from tests.support.writers import ANA, SECONDS, Writers, running_writers, until

from qim_common.ids import ConversationId

pytestmark = [pytest.mark.server, pytest.mark.slow]


@pytest.fixture(scope="module")
async def own(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Writers]:
    """A suite that these tests may break."""
    async with running_writers(tmp_path_factory.mktemp("crashes") / "suite") as running:
        yield running


async def restart(writers: Writers, name: str) -> None:
    await writers.suite.kill(name)
    await writers.suite.restart(name)


async def groups_on(writers: Writers, name: str) -> ConversationId:
    """A group whose keys are on this Valkey."""
    while True:
        group = (await writers.user(ANA).create_group()).group
        if writers.instance_name(group) == name:
            return group


async def test_a_valkey_that_is_killed_again_and_again_loses_nothing_acknowledged(own: Writers) -> None:
    async with load(own) as running:
        for name in ("valkey-0", "valkey-1", "valkey-0"):
            await running.more()
            await restart(own, name)
        await running.more()


async def test_a_writer_that_is_killed_again_and_again_loses_nothing_acknowledged(own: Writers) -> None:
    async with load(own) as running:
        for _ in range(2):
            await running.more()
            await restart(own, "writer")
        await running.more()


async def test_both_killed_at_once_lose_nothing_acknowledged(own: Writers) -> None:
    async with load(own) as running:
        await running.more()
        await own.suite.kill("writer")
        await own.suite.kill("valkey-0")
        await own.suite.restart("valkey-0")
        await own.suite.restart("writer")
        await running.more()


async def test_a_writer_that_is_stopped_under_load_acknowledges_what_it_committed(own: Writers) -> None:
    async with load(own) as running:
        await running.more()
        await own.suite.restart("writer")
        await running.more()


async def test_two_writers_of_which_one_is_killed_lose_nothing_acknowledged(own: Writers) -> None:
    async with own.second() as beside, load(own) as running, beside.client(timeout=60.0, policy=PATIENT) as client:
        other = Load(beside, client, running.groups)
        other.acknowledged = running.acknowledged
        other.start(senders=3, changing=False)
        await running.more()
        await restart(own, "writer")
        await running.more()
        await other.stop()


async def test_while_its_instance_is_down_every_method_answers_a_named_error_and_other_instances_serve_on(
    own: Writers,
) -> None:
    down, up = await groups_on(own, "valkey-1"), await groups_on(own, "valkey-0")
    before = (await own.user(ANA).send_to(up, b"before")).seq
    await own.suite.kill("valkey-1")
    try:
        for method in SERVED:
            request = method.request(down)
            if method.name == "CreateGroup":
                request.group_id = down
            if method.name == "SendMessages":
                (answer,) = await method.call(own.caller("gateway"), request)
                assert "BACKEND_UNAVAILABLE" in str(answer.results[0].status)
            elif method.name == "RunRetention":
                # Of all groups of a tenant: those of the other instances are looked at, and the answer says so.
                answer = await method.call(own.caller(method.role), request)
                assert answer.unavailable_buckets > 0
            else:
                answer = await refusal(method.call(own.caller(method.role), request))
                assert answer.name == ("UNAVAILABLE", "BACKEND_UNAVAILABLE"), method
                assert "valkey" not in answer.message
                assert "127.0.0.1" not in answer.message
        assert (await own.user(ANA).send_to(up, b"after")).seq == before + 1
    finally:
        await own.suite.restart("valkey-1")

    async def serves() -> bool:
        try:
            return (await own.user(ANA).send_to(down, b"again", timeout=SECONDS)).seq > 0
        except Exception:  # noqa: BLE001  asked until it serves
            return False

    await until(serves)
