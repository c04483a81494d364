"""A Dockerfile performed step by step without a container engine: FROM, ARG, ENV, WORKDIR, COPY, RUN, USER, ENTRYPOINT.

RUN goes into a sandbox without a network, where only the stage can be written; pip finds what it may install in a
directory of wheels. As in a container engine, a step whose inputs were seen before is not performed again, so images
that have the same dependencies share the installation. An instruction that is not known here is an error.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import shlex
import shutil
import subprocess
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dockerfile_parse import DockerfileParser
from tests.support.dockerignore import Ignored
from tests.support.image_base import ENVIRONMENT, BaseImage
from tests.support.sandbox import Sandbox

RUN_SECONDS: Final = 120.0
WHEELS: Final = "/run/wheels"
"""Where RUN finds the packages that a container engine would fetch."""

_OFFLINE: Final = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": WHEELS}


class BuildError(Exception):
    """A step failed; the message has its output, or what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line of a Dockerfile, with its continuations."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Image:
    """What a Dockerfile makes.

    Attributes:
        root: what its last stage adds to the base.
        environment: of its processes.
        user: as USER has it.
        entrypoint: the command.
        labels: name -> value.
    """

    root: Path
    environment: Mapping[str, str]
    user: str
    entrypoint: tuple[str, ...]
    labels: Mapping[str, str]


@dataclass(slots=True)
class _Stage:
    key: str = "base"
    directory: Path | None = None
    environment: dict[str, str] = field(default_factory=lambda: dict(ENVIRONMENT))
    workdir: str = "/"
    user: str = ""
    entrypoint: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    copies: list[tuple[Path, str]] = field(default_factory=list)
    """What COPY brings, not performed yet: source, and absolute target."""


def read_dockerfile(path: Path) -> list[Instruction]:
    """The instructions of a file, without comments."""
    structure = DockerfileParser(fileobj=io.BytesIO(path.read_bytes())).structure
    return [Instruction(one["instruction"], one["value"]) for one in structure if one["instruction"] != "COMMENT"]


class Builder:
    """Makes images below a directory of its own; safe to use from several threads.

    Args:
        directory: empty.
        context: the directory that COPY copies from, with its .dockerignore.
        base: of every stage.
        wheels: a directory with the packages that RUN may install.
    """

    def __init__(self, directory: Path, context: Path, base: BaseImage, wheels: Path) -> None:
        self._directory = directory
        self._context = context
        self._base = base
        self._wheels = wheels
        self._ignored = Ignored((context / ".dockerignore").read_text())
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def build(self, dockerfile: Path) -> Image:
        """Perform a Dockerfile. Raises BuildError."""
        stages: dict[str, _Stage] = {}
        stage = _Stage()
        arguments: dict[str, str] = {}
        for instruction in read_dockerfile(dockerfile):
            value = instruction.value
            match instruction.name:
                case "ARG":
                    name, _, default = value.partition("=")
                    arguments[name] = default
                case "FROM":
                    stage = self._from(_expanded(value, arguments), stages)
                case "ENV":
                    stage.environment |= _pairs(_expanded(value, stage.environment))
                case "LABEL":
                    stage.labels |= _pairs(value)
                case "WORKDIR":
                    stage.workdir = value
                case "USER":
                    stage.user = value
                case "ENTRYPOINT":
                    stage.entrypoint = tuple(json.loads(value))
                case "COPY":
                    stage.copies += self._copied(value, stage.workdir, stages)
                case "RUN":
                    self._run(value, stage)
                case unknown:
                    raise BuildError(f"{dockerfile}: {unknown} is not known here")
        root = self._performed(stage, "", lambda _: None)
        return Image(root, stage.environment, stage.user, stage.entrypoint, stage.labels)

    def _from(self, value: str, stages: dict[str, _Stage]) -> _Stage:
        words = value.split()
        made = _Stage()
        if len(words) == 3 and words[1].upper() == "AS":
            stages[words[2]] = made
        elif len(words) != 1:
            raise BuildError(f"FROM {value}: not understood")
        return made

    def _copied(self, value: str, workdir: str, stages: Mapping[str, _Stage]) -> Iterable[tuple[Path, str]]:
        *sources, target = shlex.split(value)
        absolute = target if target.startswith("/") else f"{workdir.rstrip('/')}/{target.removeprefix('./')}"
        if sources[0].startswith("--from="):
            stage = stages[sources.pop(0).removeprefix("--from=")]
            assert stage.directory is not None
            assert not stage.copies, "the stage ends with a COPY"
            found = [stage.directory / source.lstrip("/") for source in sources]
        else:
            found = [self._context / source for source in sources]
        for source in found:
            if not source.exists():
                raise BuildError(f"COPY {value}: {source} does not exist")
            yield source, absolute + source.name if target.endswith("/") and source.is_file() else absolute

    def _run(self, command: str, stage: _Stage) -> None:
        def perform(root: Path) -> None:
            (root / stage.workdir.lstrip("/")).mkdir(parents=True, exist_ok=True)
            (root / "tmp").mkdir(exist_ok=True)
            sandbox = Sandbox(
                roots=(self._base.root, self._base.tools),
                writable={"/": root},
                mounts={WHEELS: self._wheels},
                network=False,
            )
            line = f"cd {shlex.quote(stage.workdir)} && {command}"
            done = sandbox.run(["/bin/sh", "-c", line], stage.environment | _OFFLINE, timeout=RUN_SECONDS)
            if done.returncode:
                raise BuildError(f"RUN {command}: status {done.returncode}\n{done.stdout[-4000:]}")

        self._performed(stage, command, perform)

    def _performed(self, stage: _Stage, step: str, perform: Callable[[Path], None]) -> Path:
        """The stage after what COPY brings and after a step, which are performed unless they were before."""
        inputs = [stage.key, step, stage.workdir, json.dumps(stage.environment)] if step else [stage.key]
        inputs += [f"{target}={self._digest(source)}" for source, target in stage.copies]
        key = hashlib.sha256("\n".join(inputs).encode()).hexdigest()[:16]
        directory = self._directory / key
        with self._locks[key]:
            if not directory.exists():
                making = self._directory / f"{key}.new"
                if stage.directory is None:
                    making.mkdir()
                else:
                    _copy(stage.directory, making)
                for source, target in stage.copies:
                    self._bring(source, making / target.lstrip("/"))
                perform(making)
                making.rename(directory)
        stage.key, stage.directory, stage.copies = key, directory, []
        return directory

    def _files(self, source: Path) -> list[Path]:
        """What COPY takes of a file or directory of the context."""
        within = [source] if source.is_file() else sorted(path for path in source.rglob("*") if path.is_file())
        return [path for path in within if not self._ignored.ignores(path.relative_to(self._context).as_posix())]

    def _digest(self, source: Path) -> str:
        if not source.is_relative_to(self._context) or source.is_relative_to(self._directory):
            return str(source)
        found = self._files(source)
        if not found:
            raise BuildError(f"COPY: .dockerignore leaves nothing of {source.relative_to(self._context)}")
        state = hashlib.sha256()
        for path in found:
            state.update(f"{path.relative_to(source)}\n".encode())
            state.update(hashlib.sha256(path.read_bytes()).digest())
        return state.hexdigest()

    def _bring(self, source: Path, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not source.is_relative_to(self._context) or source.is_relative_to(self._directory):
            _copy(source, target)
            return
        for path in self._files(source):
            at = target / path.relative_to(source) if source.is_dir() else target
            at.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, at)


def _copy(source: Path, target: Path) -> None:
    # Far quicker than by Python for ten thousand files.
    subprocess.run(["cp", "-a", "--", str(source), str(target)], check=True)


def _expanded(text: str, known: Mapping[str, str]) -> str:
    return re.sub(r"\$\{?(\w+)\}?", lambda match: known.get(match[1], ""), text)


def _pairs(value: str) -> dict[str, str]:
    words: Sequence[tuple[str, str, str]] = [word.partition("=") for word in shlex.split(value)]
    if not all(separator for _, separator, _ in words):
        raise BuildError(f"{value}: write NAME=VALUE")
    return {name: content for name, _, content in words}
