"""Scripts as package data."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest

from qim_common.errors import BackendUnavailable
from qim_common.redis import ConnectionLost, Demoted, NoScript, ReplyError, Script, load_script
from qim_common.redis.errors import error_of_reply


def test_a_script_is_known_by_the_hash_that_redis_uses() -> None:
    assert Script("one", "return 1").sha1 == "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"


def test_a_script_is_read_from_its_package() -> None:
    assert load_script("qim_common.redis", "claim_topology").source.startswith("#!lua\n")


@pytest.mark.parametrize("name", ["no_such_script", "../scripts", ""])
def test_a_script_that_does_not_exist_is_refused(name: str) -> None:
    with pytest.raises(FileNotFoundError):
        load_script("qim_common.redis", name)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """A package with one script, which includes `part`, and what stands in its include folder; its name."""

    def make(part: str, **includes: str) -> str:
        folder = tmp_path / "including" / "lua"
        (folder / "include").mkdir(parents=True)
        (folder.parent / "__init__.py").touch()
        (folder / "script.lua").write_text(f"#!lua\n-- @include {part}\nreturn 1\n")
        for name, source in includes.items():
            (folder / "include" / f"{name}.lua").write_text(source)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "including", raising=False)
        return "including"

    return make


def test_a_part_comes_from_the_package_that_includes_it(package: Callable[..., str]) -> None:
    name = package("clock", clock="local mine = 1\n")
    assert load_script(name, "script").source == "#!lua\nlocal mine = 1\nreturn 1\n"


@pytest.mark.parametrize("part", ["clock", "idempotency"])
def test_a_part_that_the_package_does_not_have_is_the_shared_one(package: Callable[..., str], part: str) -> None:
    shared = (resources.files("qim_common") / "lua" / "include" / f"{part}.lua").read_text(encoding="utf-8")
    assert load_script(package(part), "script").source == f"#!lua\n{shared}return 1\n"


def test_a_part_that_nobody_has_is_refused(package: Callable[..., str]) -> None:
    name = package("no_such_part")
    with pytest.raises(FileNotFoundError):
        load_script(name, "script")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("OOM allow-oom flag is not set on the script", BackendUnavailable),
        ("READONLY You can't write against a read only replica.", Demoted),
        ("MASTERDOWN Link with MASTER is down", Demoted),
        ("LOADING Valkey is loading the dataset in memory", BackendUnavailable),
        ("CLUSTERDOWN The cluster is down", BackendUnavailable),
        ("MISCONF Errors writing to the AOF file", BackendUnavailable),
        ("BUSY Valkey is busy running a script", BackendUnavailable),
        ("NOSCRIPT No matching script.", NoScript),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", ReplyError),
        ("ERR OOM is not the first word", ReplyError),
        ("", ReplyError),
    ],
)
def test_error_replies_are_sorted_by_their_code(text: str, kind: type[Exception]) -> None:
    error = error_of_reply(text)
    assert type(error).__mro__[:2].count(kind) == 1
    assert not isinstance(error, ConnectionLost)


def test_what_a_caller_is_told_holds_neither_address_nor_the_servers_words() -> None:
    error = error_of_reply("OOM secret-host")
    assert isinstance(error, BackendUnavailable)
    assert "secret-host" not in error.message
    assert "secret-host" in str(error)
