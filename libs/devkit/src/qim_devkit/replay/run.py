"""One replay: a suite of its own, the import, a look through everybody's eyes, the comparison."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from qim_client import GatewayClient, GroupSettings, OperatorClient, actor
from qim_client.names import group_id, user_id
from qim_client.services import Services
from qim_common.ids import ConversationId, TenantId
from qim_devkit.importing.cursor import CursorFile
from qim_devkit.importing.importer import CALL_SECONDS, Importer
from qim_devkit.importing.lines import Person, survey
from qim_devkit.importing.plan import Plan, take_up
from qim_devkit.importing.progress import Bar
from qim_devkit.replay.answers import OWNER, Difference, PersonAnswers, differences
from qim_devkit.replay.mailboxes import AT_ONCE, Devices, Mailbox
from qim_devkit.replay.sights import Eyes
from qim_devkit.suite import Suite
from qim_devkit.tiered import BackendArguments, new_tenant

GROUP: Final = "replay"
WHOLE_GROUP: Final = {"QIM_MEMBERSHIP_EVENT_BROADCAST_MAX_MEMBERS": "100000"}
"""The answers are those of a room in which every event reaches the whole group."""

COOLING: Final = {"QIM_HOT_RECORD_HOURS": "0.003"}
"""With the backend `tiered` messages leave Redis after ten seconds: pages come from both sides of a moving border."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay found: the values that differ, how many were compared, and what the import did."""

    differences: tuple[Difference, ...]
    compared: int
    done: int
    refused: int


def name_of(person: Person) -> str:
    """The name of a person of the history; its number or text is what the answers call it."""
    return f"{GROUP}-{person}"


async def replay(
    directory: Path,
    trace: Path,
    expected: Mapping[str, PersonAnswers],
    settings: GroupSettings,
    console: Console,
    step: Callable[[str], None] = lambda text: None,
    *,
    backend: BackendArguments,
) -> Replayed:
    """Import `trace` into a new suite of this backend below `directory` and compare.

    Raises ImportFileError, ImportStoppedError, NotListedError, one of START_FAULTS, and the QimError of a call that is
    refused.
    """
    step(f"Reading {trace}")
    history = survey(trace)
    step("Starting the suite")
    tenant = new_tenant()
    async with Suite(directory / "suite", tenants=(tenant,), env_overrides=WHOLE_GROUP | COOLING, **backend) as suite:
        gateway = GatewayClient(
            suite.addresses["writer"], suite.addresses["session"], suite.gateway_files(), timeout=CALL_SECONDS
        )
        operator = OperatorClient(suite.addresses["admin"], suite.operator_files(), tenant, timeout=CALL_SECONDS)
        group, owner = group_id(GROUP), user_id(name_of(OWNER))
        services = Services(
            suite.addresses["writer"], suite.addresses["session"], suite.gateway_files(), timeout=CALL_SECONDS
        )
        mailboxes = {person: Mailbox(services, actor(tenant, user_id(name_of(person)))) for person in expected}
        async with gateway, operator, AsyncExitStack() as closing:
            closing.push_async_callback(services.close)
            step(f"Importing {history.lines:,} lines")
            plan = Plan(int(tenant), GROUP, name_of(OWNER), settings)
            with CursorFile(directory / "cursor.json") as file:
                cursor = take_up(file, plan, trace, history, renew_ids=False)
                with Bar(console, trace.name, history.lines, 0) as bar:
                    importer = Importer(
                        gateway,
                        operator,
                        file,
                        cursor,
                        tenant=tenant,
                        group=group,
                        user_of=lambda person: user_id(name_of(person)),
                        answered=bar.answered,
                        between=Devices(mailboxes.values()).keep_up,
                    )
                    cursor = await importer.run(trace, history, owner, settings)
            step(f"Looking through the eyes of {len(expected)} people")
            found = await _look(services, operator, tenant, group, mailboxes)
    wrong = [line for person, right in expected.items() for line in differences(person, right, found[person])]
    values = len(expected) * len(PersonAnswers.__slots__)
    return Replayed(tuple(wrong), values, cursor.done, cursor.refused)


async def _look(
    services: Services,
    operator: OperatorClient,
    tenant: TenantId,
    group: ConversationId,
    mailboxes: Mapping[str, Mailbox],
) -> dict[str, PersonAnswers]:
    at_once = asyncio.Semaphore(AT_ONCE)

    async def one(person: str) -> tuple[str, PersonAnswers]:
        async with at_once:
            eyes = Eyes(services, operator, actor(tenant, user_id(name_of(person))), group, mailboxes[person])
            return person, await eyes.look()

    return dict(await asyncio.gather(*map(one, mailboxes)))
