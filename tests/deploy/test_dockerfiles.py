"""The Dockerfiles and .dockerignore as files, and that what performs them is exact."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tests.support.dockerfile import Builder, BuildError, read_dockerfile
from tests.support.dockerignore import Ignored
from tests.support.image_base import BaseImage
from tests.support.images import DOCKERFILES, LOCKS, ROOT

NOWHERE = BaseImage(Path("/nonexistent"), Path("/nonexistent"))


def test_every_dockerfile_is_tested() -> None:
    found = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("services/**/*Dockerfile")}
    assert found == set(DOCKERFILES.values())


def test_the_dockerfiles_have_one_form() -> None:
    forms = set()
    for name, path in DOCKERFILES.items():
        text = (ROOT / path).read_text()
        assert f"--file {path} --tag {name}:0.1.0 ." in text
        assert f"COPY {LOCKS[name]} requirements.lock" in text
        steps = [one for one in read_dockerfile(ROOT / path) if one.name not in ("LABEL", "ENTRYPOINT")]
        lines = [
            f"{one.name} {one.value}" for one in steps if not re.fullmatch(r"(services|libs/client)\S* \S+", one.value)
        ]
        forms.add("\n".join(re.sub(r"-w /wheels( \./(client|writer|session|admin))+", "own", line) for line in lines))
    assert len(forms) == 1


def test_the_last_stage_only_copies_and_ends_as_an_unprivileged_user() -> None:
    for path in DOCKERFILES.values():
        steps = read_dockerfile(ROOT / path)
        last = steps[max(at for at, step in enumerate(steps) if step.name == "FROM") :]
        assert [step.name for step in last] == ["FROM", "LABEL", "COPY", "ENV", "USER", "ENTRYPOINT"]
        assert last[2].value == "--from=installed /opt/qim /opt/qim"


def test_the_context_has_the_packages_and_nothing_else_of_the_repository() -> None:
    ignored = Ignored((ROOT / ".dockerignore").read_text())
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        encoding="utf-8",
    ).stdout.splitlines()
    kept = {path for path in listed if not ignored.ignores(path)}
    roots = r"(protos/gen|libs/(common|client)/src|services/\w+/src)/"
    files = r"(build-requirements\.lock|services/\w+/[\w-]*requirements\.lock|(\w+/)*pyproject\.toml)"
    assert [path for path in kept if not re.match(roots, path) and not re.fullmatch(files, path)] == []
    assert {"protos/gen/qim/__init__.py", "services/writer/src/qim_writer/lua/send.lua"} <= kept
    assert ignored.ignores("services/writer/src/qim_writer/__pycache__/main.cpython-311.pyc")
    assert ignored.ignores(".qim/state.json")
    assert ignored.ignores("libs/devkit/src/qim_devkit/suite.py")


@pytest.mark.parametrize(
    ("rules", "path", "left_out"),
    [
        ("", "a", False),
        ("a", "a/b/c", True),
        ("b", "a/b", False),
        ("**/b", "a/x/b", True),
        ("*", "a/b", True),
        ("**\n!a/*.py", "a/b.py", False),
        ("**\n!a/*.py", "a/b/c.py", True),
        ("**\n!a\na/b", "a/b/c", True),
        ("**\n!a\na/b", "a/c", False),
        ("# a\n\n", "a", False),
        ("a?[bc]", "axb", True),
        ("a?[bc]", "a/b", False),
        ("a.c", "abc", False),
        ("/a/", "a/b", True),
    ],
)
def test_dockerignore_is_read_as_the_container_engines_read_it(rules: str, path: str, left_out: bool) -> None:
    assert Ignored(rules).ignores(path) == left_out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FROM base\nADD a /a\n", "ADD is not known here"),
        ("FROM base\nVOLUME /data\n", "VOLUME is not known here"),
        ("FROM a b\n", "FROM a b: not understood"),
        ("FROM base\nCOPY missing /a\n", "missing does not exist"),
        ("FROM base\nCOPY secret /a\n", "leaves nothing of secret"),
        ("FROM base\nENV A 1\n", "write NAME=VALUE"),
    ],
)
def test_what_cannot_be_performed_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "context").mkdir()
    (tmp_path / "built").mkdir()
    (tmp_path / "context/.dockerignore").write_text("secret")
    (tmp_path / "context/secret").write_text("hidden")
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text(text)
    with pytest.raises(BuildError, match=message):
        Builder(tmp_path / "built", tmp_path / "context", NOWHERE, tmp_path).build(dockerfile)
