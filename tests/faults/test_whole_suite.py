"""Crashes of every process of the suite under load: in the end each list and mailbox holds what was acknowledged."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from tests.support.load import load
from tests.support.writers import ANA, BEN, TENANT, running_writers

from qim_client.actor import ActorClient
from qim_client.gateway import GatewayClient
from qim_client.values import DeviceCursor
from qim_common.errors import QimError
from qim_common.ids import ConversationId, DeviceId

pytestmark = [pytest.mark.server, pytest.mark.slow]

SECONDS = 60.0


async def mailbox(device: ActorClient, goal: Counter[ConversationId]) -> list[tuple[ConversationId, int]]:
    """Everything that a device is given, page by page, until it has as much of each group as `goal` says."""
    given: list[tuple[ConversationId, int]] = []
    cursors: list[DeviceCursor] = []
    async with asyncio.timeout(SECONDS):
        while Counter(group for group, _ in given) != goal:
            page = await device.pull_mailbox(ack=cursors, limit=500, timeout=SECONDS)
            cursors = [entry.cursor for entry in page.entries]
            given += [
                (entry.conversation, entry.message.seq)
                for entry in page.entries
                if entry.message is not None and entry.conversation in goal
            ]
            if not page.entries:
                await asyncio.sleep(0.02)  # the session service is still behind
    return given


async def test_after_crashes_of_every_process_lists_and_mailboxes_hold_what_was_acknowledged(tmp_path: Path) -> None:
    async with running_writers(tmp_path / "suite", services=("writer", "session")) as own:
        async with load(own, groups=4, senders=4, members=[BEN]) as running:
            for name in ("session", "valkey-0", "writer", "session", "valkey-1"):
                await running.more()
                await own.suite.kill(name)
                if name == "session":
                    await running.more()  # the commit path does not need it
                await own.suite.restart(name)
            await running.more()
        groups = set(running.groups)
        addresses = own.suite.addresses
        async with GatewayClient(addresses["writer"], addresses["session"], own.suite.gateway_files()) as client:
            ben = client.as_actor(TENANT, BEN)
            history = {group: [each async for each in ben.history(group)] for group in groups}
            goal = Counter({group: len(seen) for group, seen in history.items()})
            everything = sorted((group, each.seq) for group, seen in history.items() for each in seen)
            for device in (b"phone", b"table"):
                given = await mailbox(client.as_actor(TENANT, BEN, DeviceId(device.ljust(16, b"."))), goal)
                assert sorted(given) == everything
                for group in groups:
                    seqs = [seq for place, seq in given if place == group]
                    assert seqs == sorted(seqs)
            spoken = {group: sum(each.event is None for each in seen) for group, seen in history.items()}
            await listed(ben, {group: (goal[group], spoken[group]) for group in groups})
            await listed(client.as_actor(TENANT, ANA), {group: (goal[group], 0) for group in groups})


async def listed(who: ActorClient, wanted: dict[ConversationId, tuple[int, int]]) -> None:
    """Waits until the list shows these heads and unread counts."""
    shown: dict[ConversationId, tuple[int, int]] = {}
    async with asyncio.timeout(SECONDS):
        while shown != wanted:
            try:
                shown = {
                    entry.conversation: (entry.head_seq, entry.unread_count)
                    async for entry in who.conversations()
                    if entry.conversation in wanted
                }
            except QimError as error:
                assert error.code.name == "UNAVAILABLE", error  # noqa: PT017  it connects again to what was killed
            await asyncio.sleep(0.02)
