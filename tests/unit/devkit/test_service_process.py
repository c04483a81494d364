"""The supervisor's view of one service: ready, refusing, hesitating, killed, lingering, orphaned."""

from __future__ import annotations

import asyncio
import os
import select
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from qim_devkit.ports import allocate
from qim_devkit.processes import ServiceProcess, SuiteError
from qim_devkit.protos import repository_root
from qim_devkit.tether import tethered

Make = Callable[[str], ServiceProcess]


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    made: list[ServiceProcess] = []

    def make_one(conduct: str) -> ServiceProcess:
        address = f"127.0.0.1:{allocate(['health'], {})['health']}"
        environment = {
            **os.environ,
            "PYTHONPATH": str(repository_root()),
            "PROBE_LISTEN": address,
            "PROBE_CONDUCT": conduct,
        }
        process = ServiceProcess("probe", "tests.support.health_process", environment, tmp_path / "probe.log", address)
        made.append(process)
        return process

    yield make_one
    for process in made:
        await process.kill()


async def test_start_returns_once_the_service_serves_and_stop_ends_it(make: Make) -> None:
    process = make("serve")
    await process.start()
    assert process.running
    assert f"serving as process {process.pid}" in process.log_tail(), "the tether keeps the process id"
    assert await process.stop()
    assert not process.running
    assert await process.stop(), "stopping twice is no fault"


async def test_a_service_that_ends_at_start_is_reported_with_its_own_words(make: Make) -> None:
    with pytest.raises(SuiteError, match=r"exit status 3.*\n.*QIM_REDIS_ADDR is not set"):
        await make("refuse").start()


async def test_a_service_that_never_serves_is_killed_after_the_bound(make: Make) -> None:
    process = make("hesitate")
    with pytest.raises(SuiteError, match=r"did not serve within 1\.5 s"):
        await process.start(timeout=1.5)
    assert not process.running


async def test_a_service_that_ignores_sigterm_is_killed_after_the_bound(make: Make) -> None:
    process = make("linger")
    await process.start()
    assert not await process.stop(timeout=0.2)
    assert not process.running
    assert "signal SIGKILL" in process.describe_end()


async def test_a_killed_service_starts_again_on_its_port(make: Make) -> None:
    process = make("serve")
    await process.start()
    first = process.pid
    await process.kill()
    await process.start()
    assert process.running
    assert process.pid != first


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process's state in /proc")
async def test_a_paused_service_answers_nothing_goes_on_after_a_resume_and_can_be_stopped_while_paused(
    make: Make,
) -> None:
    process = make("serve")
    await process.start()
    status = Path(f"/proc/{process.pid}/stat")
    process.pause()
    await until_state(status, "T")
    process.resume()
    await until_state(status, "S")
    process.pause()
    assert await process.stop()
    process.pause()
    process.resume()  # neither is a fault once it has ended


async def until_state(status: Path, wanted: str) -> None:
    """Waits until the kernel says that the process stands still ("T") or sleeps ("S")."""
    async with asyncio.timeout(10):
        while status.read_text().rpartition(")")[2].split()[0] != wanted:  # noqa: ASYNC110  nobody tells
            await asyncio.sleep(0.01)


async def test_a_running_service_is_not_started_twice(make: Make) -> None:
    process = make("serve")
    await process.start()
    with pytest.raises(RuntimeError, match="runs already"):
        await process.start()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
async def test_a_child_ends_with_a_supervisor_that_is_killed() -> None:
    code = (
        "import subprocess, sys, time\n"
        "from qim_devkit.tether import tethered\n"
        "child = subprocess.Popen(tethered([sys.executable, '-c', 'import time; time.sleep(60)']))\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    supervisor = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    assert supervisor.stdout is not None
    child = os.pidfd_open(int(await supervisor.stdout.readline()))
    assert not select.select([child], [], [], 0)[0], "it lives"
    supervisor.kill()
    await supervisor.wait()
    assert (await asyncio.to_thread(select.select, [child], [], [], 10))[0], "it has ended"
    os.close(child)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
async def test_a_child_whose_supervisor_is_gone_already_does_not_begin() -> None:
    command = tethered([sys.executable, "-c", "print('began')"])
    command[command.index(str(os.getpid()))] = "1"
    child = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, errors = await child.communicate()
    assert output == b""
    assert b"has ended" in errors
