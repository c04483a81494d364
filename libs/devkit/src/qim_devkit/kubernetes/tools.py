"""The programs of a Kubernetes control plane: etcd as this machine has it, kube-apiserver and kubectl built with Go.

kube-apiserver comes in no package that a developer's machine has, so it is built from the Go module beside this file,
once: 2.5 minutes of two cores, then it stays in the user's cache. kubectl is built the same way where the machine has
none, or one that is too old. `python -m qim_devkit.kubernetes.tools` builds what is missing ahead of time.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

MODULE: Final = Path(__file__).with_name("go")
"""The Go module that pins Kubernetes and everything that it is made of."""

OLDEST_KUBECTL: Final = (1, 27)
"""The first one whose kustomize takes what the manifests use."""

_BUILD_SECONDS: Final = 1800
_SAY_SECONDS: Final = 30
_LOG_END: Final = 1500


class KubernetesToolMissing(Exception):  # noqa: N818  it says what is the case
    """A program is not there and cannot be built; the message says what to install, or ends with the build's log."""


def kubernetes_version() -> str:
    """The version that is built, such as `v1.35.4`, from go.mod."""
    found = re.search(r"k8s\.io/kubernetes (v\S+)", (MODULE / "go.mod").read_text())
    if found is None:
        raise RuntimeError(f"{MODULE / 'go.mod'} requires no k8s.io/kubernetes")
    return found[1]


@functools.cache
def find_kubectl() -> Path:
    """The kubectl of PATH, or one built here if that is older than OLDEST_KUBECTL or missing.

    Raises:
        KubernetesToolMissing: there is none, and none can be built.
    """
    found = shutil.which("kubectl")
    if found is not None and _kubectl_version(found) >= OLDEST_KUBECTL:
        return Path(found)
    return provide("kubectl")


@functools.cache
def find_etcd() -> Path:
    """The etcd of PATH, 3.4 or newer.

    Raises:
        KubernetesToolMissing: there is none.
    """
    found = shutil.which("etcd")
    if found is None:
        raise KubernetesToolMissing("etcd is not installed; on Debian install etcd-server")
    return Path(found)


def find_api_server() -> Path:
    """kube-apiserver, built the first time.

    Raises:
        KubernetesToolMissing: it cannot be built.
    """
    return provide("kube-apiserver")


def provide(program: str, cache: Path | None = None) -> Path:
    """A command of Kubernetes, built from MODULE the first time; several processes may ask at once.

    Args:
        program: a folder of `k8s.io/kubernetes/cmd`.
        cache: where built programs are kept; by default `qim` in the user's cache, which outlives a checkout.

    Raises:
        KubernetesToolMissing: Go is missing or too old, or the build failed.
    """
    pins = (MODULE / "go.mod").read_bytes() + (MODULE / "go.sum").read_bytes()
    version = kubernetes_version()
    directory = (cache or _user_cache()) / f"kubernetes-{version}-{hashlib.sha256(pins).hexdigest()[:12]}"
    built = directory / program
    if built.is_file():
        return built
    go = shutil.which("go")
    if go is None:
        raise KubernetesToolMissing(
            f"{program} is built with Go, which is not installed: it needs {_go_version()} or newer"
        )
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / f"{program}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.is_file():
            _build(go, program, version, built)
    return built


def _build(go: str, program: str, version: str, built: Path) -> None:
    with tempfile.TemporaryDirectory(dir=built.parent) as temporary:
        made = Path(temporary) / program
        command = [
            *(go, "build", "-mod=readonly", "-buildvcs=false", "-o", str(made)),
            *("-ldflags", f"-s -w -X k8s.io/component-base/version.gitVersion={version}"),
            f"k8s.io/kubernetes/cmd/{program}",
        ]
        # No workspace and no flags of the user's: they may change which versions are built. A sixth less CPU for
        # compilers that collect their garbage seldom.
        environment = {"GOGC": "400", **os.environ, "GOFLAGS": "", "GOWORK": "off", "CGO_ENABLED": "0"}
        try:
            done = subprocess.run(  # noqa: S603
                command,
                cwd=MODULE,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                check=False,
                timeout=_BUILD_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise KubernetesToolMissing(f"Go did not build {program} within {_BUILD_SECONDS} s") from None
        if done.returncode or not made.is_file():
            raise KubernetesToolMissing(f"Go could not build {program} {version}:\n{done.stdout[-_LOG_END:].strip()}")
        made.replace(built)


def _user_cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if Path(home).is_absolute() else Path.home() / ".cache") / "qim"


def _go_version() -> str:
    found = re.search(r"^go (\S+)", (MODULE / "go.mod").read_text(), re.MULTILINE)
    return found[1] if found else "Go"


def _kubectl_version(kubectl: str) -> tuple[int, int]:
    """Major and minor; (0, 0) for what tells none."""
    try:
        told = subprocess.run(  # noqa: S603
            [kubectl, "version", "--client", "--output", "json"],
            capture_output=True,
            encoding="utf-8",
            check=False,
            timeout=_SAY_SECONDS,
        )
        version = json.loads(told.stdout)["clientVersion"]
        return int(version["major"]), int(re.sub(r"\D.*", "", version["minor"]))
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError):
        return 0, 0


def main() -> int:
    """Build what is missing; the exit code says whether everything is there."""
    missing = 0
    for find in (find_kubectl, find_api_server, find_etcd):
        try:
            print(find(), flush=True)
        except KubernetesToolMissing as error:
            missing = 1
            print(f"qim: {error}", file=sys.stderr)
    return missing


if __name__ == "__main__":
    sys.exit(main())
