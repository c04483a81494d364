"""Without an archive a promoted replica is accepted as it is, once the operator says so."""

from __future__ import annotations

import pytest
from tests.integration.recovery.conftest import Recovering
from tests.integration.recovery.test_fence import guarded, says_fenced
from tests.integration.recovery.test_rebuilt_keys import conversations_of, live
from tests.support.chat import ANA
from tests.support.command_lines import run_program
from tests.support.past import Past
from tests.support.valkey import connected_again

from qim_common.cassandra import CassandraSession
from qim_common.ids import TenantId
from qim_common.redis import Fingerprint, read_fingerprint
from qim_common.redis.fence import FENCE_KEY
from qim_devkit.valkey import ValkeyServer


async def fingerprint_of(recovering: Recovering, server: ValkeyServer) -> Fingerprint:
    async with recovering.instance(server) as instance:
        found = await read_fingerprint(instance)
    assert found is not None
    return found


@pytest.mark.parametrize("runs", [1, 2])
async def test_generations_rise_where_they_stand_and_once(
    cassandra_session: CassandraSession, tenant: TenantId, past: Past, valkey: ValkeyServer, runs: int
) -> None:
    recovering = Recovering(cassandra_session, tenant, "tests")
    environment = {
        "QIM_REDIS_ADDR": valkey.address,
        "QIM_COMMIT_BUCKETS": "4",
        "QIM_INSTALLATION_ID": "tests",
    }
    async with recovering.world(valkey) as world, guarded(recovering, valkey, None) as instance:
        await live(past, world, 15)
        first = await fingerprint_of(recovering, valkey)
        await instance.call("HSET", FENCE_KEY, "fenced", "a replica was promoted")
        if runs == 2:
            # A run that ended before the last step.
            begun = "ab" * 16
            await instance.call("HSET", FENCE_KEY, "recovery", begun)
        instance.connection.close("for the test")
        heads = {}
        for conversation in await conversations_of(world):
            facts = await world.stores.membership.facts(world.chat.of(conversation), ANA)
            assert facts is not None
            heads[conversation] = facts.head, facts.revision

        refused = await run_program("qimctl", "recover", "--instance", "0", "--yes", environment=environment)
        assert refused.code == 1
        assert "--accept-loss" in refused.err
        assert await says_fenced(instance)
        accept = ("recover", "--instance", "0", "--yes", "--accept-loss", "-o", "json")
        done = await run_program("qimctl", *accept, environment=environment)
        assert done.code == 0, done.err
        assert done.json["conversations"] == len(heads)

        await connected_again(instance)
        for conversation, (head, revision) in heads.items():
            facts = await world.stores.membership.facts(world.chat.of(conversation), ANA)
            assert facts is not None
            assert (facts.head, facts.generation, facts.raised) == (head, 1, ((1, head),))
            assert facts.revision == revision + 1
        after = await fingerprint_of(recovering, valkey)
        assert after.replaces == (first.log_id,)
        assert after.log_id == (begun if runs == 2 else done.json["log_id"])
        again = await run_program("qimctl", *accept, environment=environment)
        assert again.code == 1
        assert "not fenced" in again.err
