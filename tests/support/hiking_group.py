"""Plays the hiking group against an installation by its names: `python -m tests.support.hiking_group`, beside it.

Prints how many numbers were checked, and each that differs from the chapter; exits with 1 if there is one.

Arguments: the directory of the development identities (`qim_devkit.pki`), where GATEWAY and BACKEND are.
"""

from __future__ import annotations

import asyncio
import io
import sys
from pathlib import Path

from rich.console import Console

from qim_client import GatewayClient, OperatorClient
from qim_common.identity import Role
from qim_devkit.demo import verdict
from qim_devkit.demo.chapter import CHAPTER
from qim_devkit.demo.checks import Check, check_all
from qim_devkit.demo.play import CALL_SECONDS, TENANT, Stage
from qim_devkit.demo.progress import Loading
from qim_devkit.pki import DevPki

GATEWAY = "chat"
BACKEND = "shop"
BINDINGS = {"gateways": {GATEWAY: {"tenants": [int(TENANT)]}}, "backends": {BACKEND: {"tenants": [int(TENANT)]}}}
"""Of whoever plays."""


async def play(pki: DevPki) -> list[Check]:
    """The whole play, at the names that the Services have. Raises the QimError of a call that is refused."""
    gateway = GatewayClient(
        "qim-writer:7401", "qim-session:7402", pki.issue(Role.GATEWAY, GATEWAY), timeout=CALL_SECONDS
    )
    backend = OperatorClient("qim-admin:7403", pki.issue(Role.BACKEND, BACKEND), TENANT, timeout=CALL_SECONDS)
    async with gateway, backend, gateway.open_stream() as stream:
        with Loading(Console(file=io.StringIO())) as loading:
            performance = await Stage(gateway, backend, stream, loading).play()
    return check_all(performance.played, CHAPTER)


def main() -> int:
    """See the module."""
    checks = asyncio.run(play(DevPki(Path(sys.argv[1]))))
    wrong = [check for check in checks if not check.agrees]
    for check in wrong:
        print(f"{check.section}: {verdict.describe(check)}")
    print(f"{len(checks)} numbers checked")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
