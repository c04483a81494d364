"""The lock file of each image: the lines of requirements.lock that the packages in the image need, and no other.

`make lock` runs this after requirements.lock has been made and installed: what a package needs is read from the
metadata of the installed one. Versions and hashes are those of requirements.lock, so that an image has what was tested.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from itertools import product
from pathlib import Path
from typing import Any, Final, TypeAlias

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

ROOT_LOCK: Final = "requirements.lock"

IMAGE_LOCKS: Final[Mapping[str, tuple[str, ...]]] = {
    "build-requirements.lock": ("hatchling",),
    "services/writer/requirements.lock": ("qim-writer",),
    "services/session/requirements.lock": ("qim-session",),
    "services/session/push-requirements.lock": ("qim-session[push]",),
    "services/admin/requirements.lock": ("qim-admin",),
    "services/admin/qimctl-requirements.lock": ("qim-admin", "qim-writer", "qim-session"),
}
"""Path of each lock file below the project's root, and what the image has. The first is for building the wheels."""

PYTHON: Final = "3.11"
"""Of the images."""

TARGETS: Final[Sequence[Mapping[str, str]]] = tuple(
    {
        "implementation_name": "cpython",
        "implementation_version": full,
        "os_name": "posix",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": full,
        "python_version": PYTHON,
        "sys_platform": "linux",
    }
    for full, machine in product((f"{PYTHON}.0", f"{PYTHON}.99"), ("x86_64", "aarch64"))
)
"""Where an image may run, as markers see it: a line that holds in any of these is in the image's lock file."""

Projects: TypeAlias = Mapping[NormalizedName, Mapping[str, Any]]
"""The table `project` of the pyproject.toml of each package of this project, by name."""


class LockError(Exception):
    """requirements.lock cannot be read, or lacks something that an image needs."""


@dataclass(frozen=True, slots=True)
class Locked:
    """One package of a lock file.

    Attributes:
        requirement: name, version and marker.
        text: its lines with the hashes, as pip reads them, without a line break at the end.
        via: the packages that the comment below it names as needing it.
    """

    requirement: Requirement
    text: str
    via: frozenset[NormalizedName]

    @property
    def name(self) -> NormalizedName:
        """Normalized."""
        return canonicalize_name(self.requirement.name)


def read_lock(text: str) -> list[Locked]:
    """The packages of a lock file, in their order.

    Raises:
        LockError: a package has no hash, or is not pinned to one version.
    """
    found = []
    for block in re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]:
        lines = [line for line in block.splitlines() if not line.lstrip().startswith("#")]
        pinned = "\n".join(lines).rstrip()
        requirement = Requirement(lines[0].removesuffix("\\").strip())
        if "--hash=sha256:" not in pinned or not re.fullmatch(r"==[^*,]+", str(requirement.specifier)):
            raise LockError(f"{ROOT_LOCK}: {requirement.name} has no hash or no one version")
        comments = " ".join(line.lstrip(" #") for line in block.splitlines() if line.lstrip().startswith("#"))
        via = frozenset(map(canonicalize_name, re.findall(r"(?<![\w./-])[a-z0-9][\w.-]*", comments)))
        found.append(Locked(requirement, pinned, via))
    return found


def read_projects(root: Path) -> Projects:
    """The packages of this project below its root."""
    paths = sorted([root / "protos/pyproject.toml", *root.glob("libs/*/pyproject.toml")])
    tables = [tomllib.loads(path.read_text())["project"] for path in (*paths, *root.glob("services/*/pyproject.toml"))]
    return {canonicalize_name(table["name"]): table for table in tables}


def members_of(wanted: Iterable[str], projects: Projects) -> set[NormalizedName]:
    """The packages of this project among what these requirements need, directly or not."""
    return {name for name, _ in _walk(wanted, projects, {}) if name in projects}


def select(wanted: Iterable[str], projects: Projects, lock: Sequence[Locked]) -> list[Locked]:
    """What these requirements need of the lock, directly or not, in the order of the lock.

    Raises:
        LockError: something needed is not in the lock.
    """
    by_name: dict[NormalizedName, list[Locked]] = {}
    for package in lock:
        by_name.setdefault(package.name, []).append(package)
    needed = {name for name, _ in _walk(wanted, projects, by_name)} - set(projects)
    if strangers := sorted(needed - set(by_name)):
        raise LockError(f"{ROOT_LOCK} lacks {', '.join(strangers)}: add it to requirements.in, then make lock")
    return [package for package in lock if package.name in needed and _holds(package.requirement.marker)]


def _walk(
    wanted: Iterable[str], projects: Projects, lock: Mapping[NormalizedName, Sequence[Locked]]
) -> set[tuple[NormalizedName, str]]:
    """Name and extra ("" for the package itself) of everything that is needed."""
    seen: set[tuple[NormalizedName, str]] = set()
    left = [Requirement(text) for text in wanted]
    while left:
        requirement = left.pop()
        name = canonicalize_name(requirement.name)
        for extra in ("", *sorted(requirement.extras)):
            if (name, extra) not in seen:
                seen.add((name, extra))
                left += _needs(name, extra, projects, lock)
    return seen


def _needs(
    name: NormalizedName, extra: str, projects: Projects, lock: Mapping[NormalizedName, Sequence[Locked]]
) -> list[Requirement]:
    if name in projects:
        table = projects[name]
        texts = table.get("optional-dependencies", {})[extra] if extra else table.get("dependencies", [])
    else:
        try:
            texts = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            # Its marker does not hold on this machine, so that it is not installed: the lock's comments tell as much.
            return [Requirement(other) for other, them in lock.items() if any(name in one.via for one in them)]
    return [found for found in map(Requirement, texts) if _holds(found.marker, extra)]


def _holds(marker: Marker | None, extra: str = "") -> bool:
    return marker is None or any(marker.evaluate({**target, "extra": extra}) for target in TARGETS)


def image_locks(root: Path) -> dict[str, str]:
    """The content of each lock file of IMAGE_LOCKS, made from requirements.lock.

    Raises:
        LockError: see `read_lock` and `select`.
    """
    lock = read_lock((root / ROOT_LOCK).read_text())
    projects = read_projects(root)
    return {
        path: "\n".join(["# Made by make lock.", *(package.text for package in select(wanted, projects, lock))]) + "\n"
        for path, wanted in IMAGE_LOCKS.items()
    }


def main() -> int:
    """Write the lock files below the current directory. Returns the exit status."""
    try:
        for path, content in image_locks(Path.cwd()).items():
            Path(path).write_text(content)
    except LockError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
