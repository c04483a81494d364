"""What stands in for the image python:3.11-slim where no image can be fetched: this machine's Python at /usr/local.

Beside it are the C libraries that it and Debian's slim image have, and nothing else: no shell, no compiler. Building
needs a shell besides, which is in a directory of its own.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from tests.support.sandbox import NAME_SERVICE
from tests.support.valkey import missing

from qim_devkit.image_locks import PYTHON

ENVIRONMENT: Final[Mapping[str, str]] = {
    "PATH": "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
}
"""Of a container of the image."""

_STANDARD_LIBRARY: Final = f"usr/local/lib/python{PYTHON}"
_NOT_COPIED: Final = ("site-packages", "dist-packages", "test", "idlelib", "ensurepip", "config-*")
_LIBRARIES_OF_SLIM: Final = ("libstdc++.so.6", "libgcc_s.so.1", "librt.so.1", "libdl.so.2", "libpthread.so.0")
"""What packages with C extensions expect of the system, and every Debian has."""


@dataclass(frozen=True, slots=True)
class BaseImage:
    """Two directories of a root: what every container has, and what RUN needs besides."""

    root: Path
    tools: Path


def require_python_of_images() -> None:
    """Skip where the tests run on another Python than the images, see `tests.support.valkey.missing`."""
    if sysconfig.get_python_version() != PYTHON:
        missing(f"images have Python {PYTHON}, these tests run on {sysconfig.get_python_version()}")


def make_base(directory: Path) -> BaseImage:
    """Copy the stand-in into an empty directory."""
    root, tools = directory / "root", directory / "tools"
    interpreter = Path(sys.executable).resolve()
    library = Path(sysconfig.get_path("stdlib"))
    shutil.copytree(library, root / _STANDARD_LIBRARY, symlinks=True, ignore=shutil.ignore_patterns(*_NOT_COPIED))
    binaries = root / "usr/local/bin"
    binaries.mkdir()
    shutil.copy(interpreter, binaries / f"python{PYTHON}")
    for name in ("python3", "python"):
        (binaries / name).symlink_to(f"python{PYTHON}")
    _copy_pip(root / _STANDARD_LIBRARY / "site-packages", binaries / "pip")
    setpriv = shutil.which("setpriv")
    programs = [interpreter, *([Path(setpriv)] if setpriv else []), *library.glob("lib-dynload/*.so")]
    _copy_libraries(root, programs)
    etc = root / "etc"
    etc.mkdir()
    (etc / "nsswitch.conf").write_bytes(NAME_SERVICE)
    (etc / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/nonexistent:/bin/false\n")
    (etc / "group").write_text("root:x:0:\nnogroup:x:65534:\n")
    (tools / "bin").mkdir(parents=True)
    shutil.copy(Path("/bin/sh").resolve(), tools / "bin/sh")
    return BaseImage(root, tools)


def _copy_pip(into: Path, script: Path) -> None:
    # With its bytecode: each RUN would make that anew.
    shutil.copytree(Path(str(metadata.distribution("pip").locate_file("pip"))), into / "pip")
    script.write_text(f"#!/usr/local/bin/python{PYTHON}\nimport sys\nfrom pip import main\nsys.exit(main())\n")
    script.chmod(0o755)


def _copy_libraries(root: Path, programs: Iterable[Path]) -> None:
    """What the programs load, where the loader looks for it."""
    found = {path.name: path for path in _loaded(programs)} | _standing()
    usual = found["libc.so.6"].parent
    for name, path in found.items():
        own = path if path.parts[1] in ("lib", "lib64") or path.is_relative_to("/usr/lib") else usual / name
        target = root / own.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)


def _loaded(programs: Iterable[Path]) -> Iterator[Path]:
    told = subprocess.run(["ldd", *map(str, programs)], check=True, capture_output=True, encoding="utf-8").stdout
    for line in told.splitlines():
        if match := re.search(r"(?:=> |^\s+)(/\S+) \(0x", line):
            yield Path(match[1])


def _standing() -> dict[str, Path]:
    told = subprocess.run(["/sbin/ldconfig", "-p"], check=True, capture_output=True, encoding="utf-8").stdout
    here = "x86-64" if sysconfig.get_platform().endswith("x86_64") else "AArch64"
    lines = [line.split() for line in told.splitlines() if here in line]
    return {words[0]: Path(words[-1]) for words in reversed(lines) if words[0] in _LIBRARIES_OF_SLIM}
