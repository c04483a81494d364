"""The authority for which conversations a person has: the same on every backend."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
import pytest_asyncio
from tests.support.cassandra import CASSANDRA_MARKS

from qim_common.cassandra import CassandraSession
from qim_common.ids import ConversationId, TenantId, UserId
from qim_common.redis import Instance
from qim_common.topology import Topology
from qim_devkit.valkey import ValkeyServer
from qim_session.backends.cassandra_sets import CassandraConversationSets
from qim_session.backends.redis_people import RedisPeople
from qim_session.domain.entries import ProjectionEntry
from qim_session.storage.projection import ConversationSets


class Person(NamedTuple):
    tenant: TenantId
    user: UserId


def entry(person: Person, conversation: ConversationId, time_ms: int = 1_700_000_000_000) -> ProjectionEntry:
    return ProjectionEntry(person.tenant, person.user, conversation, time_ms)


def group() -> ConversationId:
    return ConversationId(b"\x02" + os.urandom(15))


def direct() -> ConversationId:
    return ConversationId(b"\x01" + os.urandom(15))


@pytest_asyncio.fixture
async def redis_sets(valkey_session: ValkeyServer) -> AsyncIterator[ConversationSets]:
    instance = Instance(valkey_session.address, name="test", instance_position=0)
    await instance.start()
    yield RedisPeople([instance], Topology((valkey_session.address,), 16, "test"))
    await instance.close()


@pytest.fixture
def tiered_sets(cassandra_session: CassandraSession) -> ConversationSets:
    return CassandraConversationSets(cassandra_session)


@pytest.fixture(params=["redis", pytest.param("tiered", marks=CASSANDRA_MARKS)])
def sets(request: pytest.FixtureRequest) -> ConversationSets:
    """Each backend in turn."""
    chosen: ConversationSets = request.getfixturevalue(f"{request.param}_sets")
    return chosen


@pytest.fixture
def ana(tenant: TenantId) -> Person:
    return Person(tenant, UserId(os.urandom(16)))


async def test_a_person_whom_nobody_registered_has_no_conversations(sets: ConversationSets, ana: Person) -> None:
    assert await sets.of(*ana) == []


async def test_registered_conversations_are_found_both_kinds(sets: ConversationSets, ana: Person) -> None:
    mine = {group(), group(), direct()}
    await sets.register([entry(ana, conversation) for conversation in mine])

    found = await sets.of(*ana)
    assert len(found) == 3
    assert set(found) == mine


async def test_registering_again_at_any_time_adds_nothing(sets: ConversationSets, ana: Person) -> None:
    hikers = group()
    await sets.register([entry(ana, hikers, 2_000), entry(ana, hikers, 2_000)])
    await sets.register([entry(ana, hikers, 3_000)])
    await sets.register([entry(ana, hikers, 1_000)])

    assert await sets.of(*ana) == [hikers]


async def test_registering_nothing_changes_nothing(sets: ConversationSets, ana: Person) -> None:
    hikers = group()
    await sets.register([entry(ana, hikers)])
    await sets.register([])
    assert await sets.of(*ana) == [hikers]


async def test_people_and_tenants_are_kept_apart(sets: ConversationSets, ana: Person) -> None:
    ben = Person(ana.tenant, UserId(os.urandom(16)))
    namesake = Person(TenantId(ana.tenant + 2**63 - 1), ana.user)
    hikers, climbers, others = group(), group(), group()
    await sets.register([entry(ana, hikers), entry(ben, climbers), entry(namesake, others)])

    assert await sets.of(*ana) == [hikers]
    assert await sets.of(*ben) == [climbers]
    assert await sets.of(*namesake) == [others]


@pytest.mark.parametrize("tenant", [1, 2**63 - 1, 2**63, 2**64 - 1])
async def test_a_tenant_of_any_64_bits_has_a_set(sets: ConversationSets, tenant: int) -> None:
    person = Person(TenantId(tenant), UserId(os.urandom(16)))
    hikers = group()
    await sets.register([entry(person, hikers)])
    assert await sets.of(*person) == [hikers]


async def test_thousands_of_conversations_of_one_person_come_whole(sets: ConversationSets, ana: Person) -> None:
    mine = {group() for _ in range(2_500)}
    await sets.register([entry(ana, conversation) for conversation in mine])

    found = await sets.of(*ana)
    assert len(found) == 2_500
    assert set(found) == mine
