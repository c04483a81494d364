"""A rolling update in the way that the manifests say, under load from the client library: nobody notices it.

The production overlay's numbers of pods, strategy, probes, drain and grace, with local processes that find each other
by a hosts file. The backend is `redis` on two commit instances: how pods are replaced is the same on both, and the
archive's own failures have tests of their own (tests/faults).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from tests.support import hiking_group
from tests.support.contained import Contained
from tests.support.manifests import PRODUCTION, ROOT, rendered
from tests.support.rolling_load import BEGUN
from tests.support.rollout import Rollout
from tests.support.sandbox import require_sandbox
from tests.support.valkey import require_valkey

from qim_common.identity import Role
from qim_devkit.kubernetes.pods import replicas
from qim_devkit.valkey import ValkeyServer

SERVICES: Final = ("qim-writer", "qim-session", "qim-admin")
KINDS: Final = {"send", "stream", "list", "unread", "history", "create", "leave", "operator"}
BEGIN_SECONDS: Final = 30.0
END_SECONDS: Final = 90.0

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(240)]


@pytest_asyncio.fixture(scope="module")
async def rollout(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rollout]:
    """The three services with as many pods as the autoscalers leave at least."""
    require_sandbox()
    require_valkey()
    manifests = rendered(PRODUCTION)
    password = secrets.token_urlsafe(24)
    directory = tmp_path_factory.mktemp("rollout")
    with contextlib.ExitStack() as stack:
        options = {"requirepass": f'"{password}"'}
        valkeys = [stack.enter_context(ValkeyServer(options=options)) for _ in range(2)]
        async with Rollout(directory / "cluster", manifests, valkeys, password=password) as made:
            for role, identity in ((Role.GATEWAY, hiking_group.GATEWAY), (Role.BACKEND, hiking_group.BACKEND)):
                made.pki.issue(role, identity)
            await asyncio.gather(*(made.scale(name, replicas(manifests, name)) for name in SERVICES))
            yield made


@contextlib.asynccontextmanager
async def _loaded(
    rollout: Rollout, log: Path, *, attempts: int = 0, pace: float = 0.1
) -> AsyncIterator[dict[str, Any]]:
    """The load runs inside of the context; its report is complete after it."""
    arguments = [str(rollout.pki.directory), str(attempts), str(pace)]
    command = [sys.executable, "-m", "tests.support.rolling_load", *arguments]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT.parent.parent)}
    report: dict[str, Any] = {}
    async with Contained("load", rollout.sandbox(), command, environment, log) as load:
        async with asyncio.timeout(BEGIN_SECONDS):
            while BEGUN not in log.read_text():
                assert load.running, load.log_tail()
                await asyncio.sleep(0.05)
        yield report
        assert load.running, load.log_tail()
        load.signal(signal.SIGTERM)
        assert await load.wait(END_SECONDS) == 0, load.log_tail()
    report |= json.loads(log.read_text().splitlines()[-1])


async def test_nobody_notices_a_rolling_update(rollout: Rollout, tmp_path: Path) -> None:
    before = {name: list(rollout.pods[name]) for name in SERVICES}
    async with _loaded(rollout, tmp_path / "load.log") as report:
        for name in SERVICES:
            await rollout.roll(name)
    assert not any(pod in rollout.pods[name] for name, pods in before.items() for pod in pods)
    told = f"{report}{rollout.log_tails()}"
    assert report["failures"] == [], told
    assert report["faults"] == [], told
    assert report["calls"].keys() == KINDS
    assert report["reattached"] > 0, "the live stream was on a pod that has gone"


async def test_nobody_notices_fewer_and_more_session_pods(rollout: Rollout, tmp_path: Path) -> None:
    usual = replicas(rollout.manifests, "qim-session")
    async with _loaded(rollout, tmp_path / "load.log") as report:
        # Twice the oldest goes, so that the live stream has to move whichever pod it was on.
        for count in (1, usual, 1, usual):
            await rollout.scale("qim-session", count)
    told = f"{report}{rollout.log_tails()}"
    assert report["failures"] == [], told
    assert report["faults"] == [], told
    assert report["reattached"] > 0, "the live stream was on a pod that has gone"


async def test_a_writer_that_dies_is_seen_by_the_same_load_where_nothing_is_repeated(
    rollout: Rollout, tmp_path: Path
) -> None:
    async with _loaded(rollout, tmp_path / "load.log", attempts=1, pace=0.0) as report:
        await rollout.crash(rollout.pods["qim-writer"][0])
    assert any("UNAVAILABLE" in failure for failure in report["failures"]), report
