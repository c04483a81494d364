"""`make demo` as its audience runs it: the whole suite as processes, every number checked, and its clean ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.valkey import require_valkey

DEMO = ("-m", "qim_devkit.demo")
WRONG_CHAPTER = (
    "-c",
    """
from dataclasses import replace
from qim_devkit.demo.app import main
from qim_devkit.demo.chapter import CHAPTER
raise SystemExit(main(replace(CHAPTER, hidden_from_ben=63)))
""",
)
NO_START = (
    "-c",
    "from qim_devkit.demo.app import main; raise SystemExit(main(env_overrides={'QIM_LOG_LEVEL': 'LOUD'}))",
)
HEEDING_INTERRUPTS = (
    "-c",
    """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
""",
)
"""A test run in the background of a shell ignores SIGINT, and its children inherit that.

The child resets it itself: a `preexec_fn` would make this process fork, which gRPC's threads may not survive.
"""

SECONDS = 90.0
_OF_GRPC = re.compile(r"^[EWI]\d{4} .*\n", re.MULTILINE)
"""What gRPC's C core writes to stderr of its own accord."""

pytestmark = [pytest.mark.server, pytest.mark.slow]


@pytest.fixture(autouse=True)
def needs_valkey() -> None:
    require_valkey()


@contextlib.asynccontextmanager
async def demo(directory: Path, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The demo with its output in a pipe, and its temporary files below `directory`."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *HEEDING_INTERRUPTS,
        *arguments,
        env={**os.environ, "TMPDIR": str(directory), "PYTHONUNBUFFERED": "1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def played(directory: Path, *arguments: str) -> tuple[int | None, str, str]:
    """Exit status, standard output and standard error of a demo that runs to its end."""
    async with demo(directory, *arguments) as process, asyncio.timeout(SECONDS):
        output, errors = await process.communicate()
        return process.returncode, output.decode(), _OF_GRPC.sub("", errors.decode())


async def line_with(process: asyncio.subprocess.Process, text: str) -> None:
    """Returns once the demo has printed a line with `text`."""
    assert process.stdout is not None
    async with asyncio.timeout(SECONDS):
        while text not in (line := (await process.stdout.readline()).decode()):
            assert line, f"the demo ended without saying {text!r}"


async def test_the_demo_finds_every_number_of_the_chapter(tmp_path: Path) -> None:
    status, output, errors = await played(tmp_path, *DEMO)
    assert (status, errors) == (0, "")
    assert "numbers agree. 14,691 messages and 9 membership changes" in output
    assert "✗" not in output
    assert "\x1b" not in output
    assert max(map(len, output.splitlines())) <= 100
    assert list(tmp_path.iterdir()) == []


async def test_a_number_that_differs_from_the_chapter_fails_the_demo(tmp_path: Path) -> None:
    status, output, errors = await played(tmp_path, *WRONG_CHAPTER)
    assert (status, errors) == (1, "")
    assert "✗ messages hidden from Ben: expected 63, found 64" in output
    assert "2 of " in output
    assert "numbers differ" in output
    assert "agree." not in output


async def test_a_service_that_does_not_start_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    status, output, _ = await played(tmp_path, *NO_START)
    assert status == 1
    assert "A process of the suite failed." in output
    assert "writer ended while starting" in output
    assert "QIM_LOG_LEVEL" in output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="finds the service's process in /proc")
async def test_a_service_that_dies_meanwhile_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    async with demo(tmp_path, *DEMO) as process:
        await line_with(process, "Playing three groups")
        os.kill(child_with(process.pid, "qim_writer.main"), signal.SIGKILL)
        async with asyncio.timeout(SECONDS):
            output, _ = await process.communicate()
    assert process.returncode == 1
    assert "writer ended with signal SIGKILL; the end of" in output.decode()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("said", ["Starting two Valkeys", "Playing three groups"])
async def test_ctrl_c_ends_everything(tmp_path: Path, said: str) -> None:
    async with demo(tmp_path, *DEMO) as process:
        await line_with(process, said)
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(SECONDS):
            output, errors = await process.communicate()
    assert (process.returncode, errors) == (128 + signal.SIGINT, b"")
    assert output.decode().splitlines()[-1] == "Stopped by SIGINT; everything has ended."
    assert list(tmp_path.iterdir()) == []


def child_with(parent: int, argument: str) -> int:
    """The process id of a child of `parent` that was started with `argument`."""
    for task in Path(f"/proc/{parent}/task").iterdir():
        for pid in (task / "children").read_text().split():
            if argument.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                return int(pid)
    raise AssertionError(f"no child of {parent} runs {argument}")
