"""The embedded server that everything else is tested on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import redis
from tests.support import valkey as support

from qim_devkit.valkey import ValkeyNotAvailable, ValkeyServer, ValkeyStartError

pytestmark = pytest.mark.server


def _client(server: ValkeyServer) -> redis.Redis:
    return redis.Redis(host=server.host, port=server.port, protocol=2)


def test_what_was_acknowledged_is_there_after_a_crash_and_a_restart(valkey: ValkeyServer) -> None:
    with _client(valkey) as client:
        client.set("k", "v")
    port, pid = valkey.port, valkey.pid
    valkey.kill()
    assert not valkey.running
    valkey.start()
    assert (valkey.port, valkey.running) == (port, True)
    assert valkey.pid != pid
    with _client(valkey) as client:
        assert client.get("k") == b"v"


def test_a_directory_that_is_named_is_kept_and_a_temporary_one_removed(tmp_path: Path) -> None:
    support.require_valkey()
    with ValkeyServer(tmp_path / "with a blank") as kept, ValkeyServer() as temporary:
        assert kept.running
    assert (kept.directory / "appendonlydir").is_dir()
    assert not temporary.directory.exists()


def test_a_paused_server_can_be_stopped(valkey: ValkeyServer) -> None:
    os.kill(valkey.pid, signal.SIGSTOP)
    valkey.stop()
    assert not valkey.running
    with pytest.raises(RuntimeError, match="not running"):
        _ = valkey.pid


def test_a_faulty_setting_is_reported_by_name(valkey: ValkeyServer) -> None:
    valkey.stop()
    valkey.options["no-such-setting"] = "1"
    with pytest.raises(ValkeyStartError, match="ended while starting"):
        valkey.start()
    assert not valkey.running


def test_a_port_that_is_taken_is_reported(valkey: ValkeyServer) -> None:
    second = ValkeyServer(port=valkey.port)
    try:
        with pytest.raises(ValkeyStartError, match="Address already in use"):
            second.start()
    finally:
        second.remove()


def test_starting_twice_is_a_programming_error(valkey: ValkeyServer) -> None:
    with pytest.raises(RuntimeError, match="runs already"):
        valkey.start()


@pytest.mark.parametrize(("ci", "outcome"), [("", pytest.skip.Exception), ("1", pytest.fail.Exception)])
def test_a_missing_server_skips_here_and_fails_in_ci(
    monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException]
) -> None:
    def missing() -> Path:
        raise ValkeyNotAvailable("none for this platform")

    monkeypatch.setattr(support, "find_server", missing)
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="none for this platform"):
        support.require_valkey()
