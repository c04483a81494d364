"""The sandbox of the deployment tests: what a process in it can see, write and become."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Final

import pytest
from tests.support.contained import Contained, ContainedError
from tests.support.sandbox import MountedVolume, Sandbox, hosts_file, require_sandbox

PATH: Final = {"PATH": "/usr/bin:/bin"}


@pytest.fixture(autouse=True)
def needs_sandbox() -> None:
    require_sandbox()


def test_names_lead_where_the_hosts_file_says_also_after_it_changed(tmp_path: Path) -> None:
    hosts = hosts_file(tmp_path / "hosts", {"writer": ["127.9.0.1", "127.9.0.2"]})
    sandbox = Sandbox(hosts=hosts)
    assert sandbox.run(["getent", "ahostsv4", "writer"], PATH).stdout.count("STREAM") == 2
    hosts_file(hosts, {"writer": ["127.9.0.3"]})
    assert "127.9.0.3" in sandbox.run(["getent", "ahostsv4", "writer"], PATH).stdout


def test_only_what_is_mounted_to_be_written_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    sandbox = Sandbox(writable={"/data": tmp_path / "data"})
    done = sandbox.run(["sh", "-c", "echo a >/data/a; echo b >/b; echo c >/etc/c; echo d >/usr/d"], PATH)
    assert done.stdout.count("Read-only file system") == 3
    assert (tmp_path / "data/a").read_text() == "a\n"


def test_a_user_of_its_own_has_no_capability_and_gets_none_back(tmp_path: Path) -> None:
    volume = MountedVolume(tmp_path / "volume", {"a": b"mine"}, mode=0o440, group=10001)
    sandbox = Sandbox(mounts={"/volume": volume.directory}, user=10001)
    done = sandbox.run(
        ["sh", "-c", "id -u; cat /volume/a; echo; grep -E '^(CapEff|NoNewPrivs)' /proc/self/status"], PATH
    )
    assert done.stdout.split() == ["10001", "mine", "CapEff:", "0000000000000000", "NoNewPrivs:", "1"]


def test_a_volume_changes_all_at_once_and_names_may_be_paths(tmp_path: Path) -> None:
    volume = MountedVolume(tmp_path / "volume", {"a": b"1", "auth/b": b"2"})
    sandbox = Sandbox(mounts={"/volume": volume.directory})
    assert sandbox.run(["cat", "/volume/a", "/volume/auth/b"], PATH).stdout == "12"
    volume.update({"a": b"3", "auth/b": b"4"})
    assert sandbox.run(["cat", "/volume/a", "/volume/auth/b"], PATH).stdout == "34"
    assert sorted(entry.name for entry in volume.directory.iterdir())[:1] == ["..data"]
    assert len(list(volume.directory.iterdir())) == 4


async def test_a_contained_process_takes_signals_and_tells_its_status(tmp_path: Path) -> None:
    handle = "import signal, time; signal.signal(signal.SIGTERM, lambda *_: exit(3))"
    program = f"{handle}; print('up', flush=True); time.sleep(60)"
    log = tmp_path / "log"
    async with Contained("it", Sandbox(), [sys.executable, "-c", program], PATH, log) as it:
        while "up" not in it.log_tail():
            assert it.running, it.log_tail()
            os.sched_yield()
        assert await it.stop(20) == 3
        assert not it.running


async def test_a_contained_process_that_does_not_end_in_time_is_killed_and_told(tmp_path: Path) -> None:
    # Process 1 of its own takes no signal that it does not handle, as in a container.
    async with Contained("it", Sandbox(), ["sleep", "60"], PATH, tmp_path / "log") as it:
        with pytest.raises(ContainedError, match=r"it did not end within 0\.1 s"):
            await it.stop(0.1)
        assert not it.running
        it.signal(signal.SIGTERM)


async def test_a_process_that_ends_while_it_is_probed_is_told_with_its_log(tmp_path: Path) -> None:
    probe = {"grpc": {"port": 1}, "failureThreshold": 60, "periodSeconds": 1}
    async with Contained("it", Sandbox(), ["sh", "-c", "echo because; exit 7"], PATH, tmp_path / "log") as it:
        with pytest.raises(ContainedError, match=r"(?s)status 7.*because"):
            await it.until_probe(probe, "127.0.0.1", {})


async def test_a_process_that_never_answers_its_probe_is_given_up_when_the_kubelet_would(tmp_path: Path) -> None:
    probe = {"grpc": {"port": 1}, "failureThreshold": 1, "periodSeconds": 1}
    async with Contained("it", Sandbox(), ["sleep", "60"], PATH, tmp_path / "log") as it:
        with pytest.raises(ContainedError, match=r"did not pass its probe at 127\.0\.0\.1:1 in 1 s"):
            await it.until_probe(probe, "127.0.0.1", {})
