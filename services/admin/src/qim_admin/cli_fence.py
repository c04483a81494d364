"""`qimctl fence`: nothing uses a commit instance any more, for a recovery or for maintenance (docs/recovery.md).

It works on Redis itself, configured by the services' variables.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated, Final

import typer
from rich.text import Text

from qim_admin.cli_session import Session, refusal
from qim_client.presentation import CONFIGURATION, Refusal
from qim_common.config import StoreSettings, load
from qim_common.errors import QimError
from qim_common.redis import Instance, Role, read_fingerprint
from qim_common.redis.fence_by_hand import fence_by_hand, lift_by_hand
from qim_common.start import StartRefusedError
from qim_common.topology import Topology

FENCE_REFUSED: Final = "FENCE_REFUSED"
_CONNECT_SECONDS: Final = 10.0


class FenceRefused(Exception):  # noqa: N818  it says what happened, as those of qim_common.errors do
    """The fence is left as it is; the message says why."""


@dataclass(frozen=True, slots=True)
class FenceReport:
    """What was done: `fenced` is the reason that stands, empty after the fence was lifted."""

    instance: int
    address: str
    fenced: str


def fence(
    context: typer.Context,
    instance: Annotated[
        int, typer.Option("--instance", metavar="N", min=0, help="Its place in QIM_REDIS_ADDR and the others, from 0.")
    ],
    why: Annotated[str, typer.Option("--why", help="What services log as the reason.")] = "",
    lift: Annotated[bool, typer.Option("--lift", help="Lift a fence that was set so; no other.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Fence a commit instance: all calls of its conversations fail until it is recovered, or the fence is lifted."""
    session: Session = context.obj
    if not yes and not lift:
        typer.confirm(f"Fence instance {instance}? Calls of its conversations fail then", abort=True, err=True)
    try:
        report = asyncio.run(_work(instance, why, lift=lift))
    except FenceRefused as error:
        session.fail(Refusal(FENCE_REFUSED, str(error), (), "See docs/recovery.md."))
    except QimError as error:
        # Who runs this operates the stores: the details are theirs to see.
        session.fail(Refusal(refusal(error).reason, str(getattr(error, "detail", error)), (), ""))
    except StartRefusedError as error:
        session.fail(Refusal(CONFIGURATION, str(error), (), ""))
    session.show(report, lambda: [Text(_words(report))])


async def _work(position: int, why: str, *, lift: bool) -> FenceReport:
    settings = load(StoreSettings)
    topology = Topology(settings.commit_addrs, settings.commit_buckets, settings.installation_id, settings.backend)
    if position >= topology.count:
        raise FenceRefused(f"there is no instance {position}: the configuration has 0 to {topology.count - 1}")
    server = Instance(topology.addresses[position], name="qim-fence", instance_position=position)
    try:
        await server.start(_CONNECT_SECONDS)
        fingerprint = await read_fingerprint(server, Role.COMMIT)
        if fingerprint is None:
            raise FenceRefused(f"instance {position} has no data of this installation: no service uses it as it is")
        differences = fingerprint.differences(position, topology)
        if differences:
            raise FenceRefused(f"instance {position} is another one: " + "; ".join(differences))
        if not lift:
            return FenceReport(position, str(server.address), await fence_by_hand(server, why))
        refused = await lift_by_hand(server)
        if refused:
            raise FenceRefused(f"instance {position}: {refused}")
        return FenceReport(position, str(server.address), "")
    finally:
        await server.close()


def _words(report: FenceReport) -> str:
    place = f"instance {report.instance} at {report.address}"
    return f"{place} is fenced: {report.fenced}" if report.fenced else f"{place}: the fence is lifted"
