"""One group of 100,000 people, built through the API by calls of 1,000."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from tests.support.writers import ANA, TENANT, Writers, person, running_writers

from qim.membership.v1 import membership_pb2
from qim_common.ids import ConversationId, UserId

PEOPLE = 1_000
CALLS = 100
MEMBERS = PEOPLE * CALLS


def batch(number: int) -> list[UserId]:
    """The people of the call `number`, from 0; Ana, who made the group, is in none of them."""
    return [person(number * PEOPLE + index) for index in range(PEOPLE - (number == CALLS - 1))]


@dataclass(frozen=True)
class Crowd:
    """The group. Version 1 is Ana alone; version 1 + k has the people of the first k calls besides."""

    writers: Writers
    group: ConversationId

    def at(self, version: int) -> set[bytes]:
        """The members at one of the first versions."""
        return {ANA, *(user for number in range(version - 1) for user in batch(number))}

    async def chunks(self, version: int, shard: int | None = None) -> list[membership_pb2.RecipientChunk]:
        """RecipientsForVersion, as the session service reads it."""
        request = membership_pb2.RecipientsForVersionRequest(
            tenant_id=TENANT, group_id=self.group, membership_version=version, target_shard=shard
        )
        call = self.writers.caller("session").membership.RecipientsForVersion(request)
        return [chunk async for chunk in call]

    async def version(self) -> int:
        """The present one."""
        return (await self.writers.user(ANA).members_page(self.group, page_size=1)).membership_version


@pytest.fixture(scope="package")
async def crowd(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Crowd]:
    """The group; tests put back whom they take out, or take out only people of their own."""
    async with running_writers(tmp_path_factory.mktemp("crowd") / "suite", valkeys=1) as writers:
        created = await writers.user(ANA).create_group()
        for number in range(CALLS):
            answer = await writers.change(created.group, batch(number))
            assert answer.version == number + 2
        assert answer.member_count == MEMBERS
        yield Crowd(writers, created.group)
