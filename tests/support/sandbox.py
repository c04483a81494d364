"""A process as a container runs it: a root that cannot be written, files mounted into it, host names of its own.

bubblewrap makes the mounts; the network is this machine's, so that pods which play on it have one loopback address each
and find each other by a hosts file. The process is process 1 of its own, as in a container.

hosts = hosts_file(tmp_path / "hosts", {"qim-writer": ["127.1.0.1", "127.1.0.2"]})
volume = MountedVolume(tmp_path / "tls", {"tls.crt": b"..."})
sandbox = Sandbox(hosts=hosts, mounts={"/etc/qim/tls": volume.directory})
async with Contained("writer", sandbox, command, environment, log=tmp_path / "writer.log") as writer:
    await writer.until_probe(container.startup, "127.1.0.1", container.ports)

`Contained`, a process that runs until it is ended, is in tests.support.contained.
"""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from tests.support.valkey import missing

NAME_SERVICE: Final = b"passwd: files\ngroup: files\nhosts: files dns\n"

_SETPRIV: Final = "/.setpriv"
_OWN_MOUNTS: Final = frozenset({"dev", "proc", "sys", "run", "lost+found"})


@functools.cache
def why_no_sandbox() -> str:
    """Why no sandbox can be made on this machine; empty where it can."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return "bubblewrap (bwrap) is not installed"
    if shutil.which("setpriv") is None:
        return "setpriv (util-linux) is not installed"
    tried = subprocess.run(
        [bwrap, "--ro-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "true"],
        check=False,
        capture_output=True,
        encoding="utf-8",
    )
    return "" if tried.returncode == 0 else f"bubblewrap makes no sandbox here: {tried.stderr.strip()}"


def require_sandbox() -> None:
    """Skip without bubblewrap, see `tests.support.valkey.missing`."""
    if why := why_no_sandbox():
        missing(f"no sandbox: {why}")


def hosts_file(path: Path, names: Mapping[str, Sequence[str]]) -> Path:
    """A hosts file where each name has these addresses, in this order, besides `localhost`.

    It may be written again while sandboxes have it: they see the new content at once.
    """
    lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, at in names.items() for address in at)]
    # Not replaced by another file: a mount would go on showing the old one.
    path.write_text("\n".join(lines) + "\n")
    return path


class MountedVolume:
    """A Secret or ConfigMap as the kubelet mounts it: each file is a link through `..data` to a directory of its state.

    Args:
        directory: made here; mount it.
        files: name -> content; a name may be a path.
        mode: of each file.
        group: that the files belong to (`fsGroup`); only root can give it, others leave them as their own.
    """

    _states = itertools.count()

    def __init__(
        self, directory: Path, files: Mapping[str, bytes], *, mode: int = 0o440, group: int | None = None
    ) -> None:
        self.directory = directory
        self._mode = mode
        self._group = group if os.geteuid() == 0 else None
        directory.mkdir(parents=True)
        directory.chmod(0o755)
        self.update(files)
        for name in {PurePosixPath(path).parts[0] for path in files}:
            (directory / name).symlink_to(f"..data/{name}")

    def update(self, files: Mapping[str, bytes]) -> None:
        """Another content of the same files, all at once, as the kubelet does it when the object changes."""
        state = self.directory / f"..state_{next(self._states)}"
        state.mkdir(mode=0o755)
        for name, content in files.items():
            file = state / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            if self._group is not None:
                os.chown(file, 0, self._group)
            file.chmod(self._mode)
        data = self.directory / "..data"
        old = data.readlink() if data.is_symlink() else None
        new = self.directory / "..data_tmp"
        new.symlink_to(state.name)
        new.replace(data)
        if old is not None:
            shutil.rmtree(self.directory / old)


@dataclass(frozen=True, kw_only=True)
class Sandbox:
    """What a process finds.

    Attributes:
        roots: directories whose content is the root, later ones over earlier ones; none: this machine's own files but
            for /run. Either way nothing of them can be written.
        mounts: absolute path -> a file or directory of this machine, shown there; it cannot be written.
        writable: absolute path -> a directory of this machine that can. "/" is the root itself then, below `roots`.
        hosts: the hosts file.
        user: number of user and group of the process, without any capability; run by root it really is that user, else
            it is inside a user namespace only. None: whoever runs the tests.
        network: whether it has this machine's network; else none at all.
    """

    roots: Sequence[Path] = ()
    mounts: Mapping[str, Path] = field(default_factory=dict)
    writable: Mapping[str, Path] = field(default_factory=dict)
    hosts: Path | None = None
    user: int | None = None
    network: bool = True

    def arguments(self, command: Sequence[str]) -> list[str]:
        """The command line that runs `command` inside, which is found along the PATH of its environment."""
        bwrap = shutil.which("bwrap")
        assert bwrap is not None, "ask require_sandbox first"
        made = [bwrap, "--die-with-parent", "--new-session", "--unshare-pid", "--as-pid-1", "--unshare-ipc"]
        made += ["--unshare-uts"] + ([] if self.network else ["--unshare-net"])
        if "/" in self.writable:
            made += ["--bind", str(self.writable["/"]), "/"]
        shown = [*self.mounts, *self.writable, "/etc/hosts"]
        # bubblewrap makes missing parents too, but for root alone.
        made += [word for directory in _parents(shown) for word in ("--dir", directory)]
        for source in self.roots or [Path("/")]:
            made += _root(source, own=not self.roots)
        made += ["--proc", "/proc", "--dev", "/dev", *self._user_arguments()]
        for path, source in self.mounts.items():
            made += ["--ro-bind", str(source), path]
        if self.hosts is not None:
            made += ["--ro-bind", str(self.hosts), "/etc/hosts"]
        for path, source in self.writable.items():
            made += ["--bind", str(source), path] if path != "/" else []
        made += ["--remount-ro", "/"] if "/" not in self.writable else []
        return [*made, "--", *self._become_user(), *command]

    def _user_arguments(self) -> list[str]:
        if self.user is None:
            return []
        if os.geteuid() == 0:
            return ["--ro-bind", str(shutil.which("setpriv")), _SETPRIV]
        return ["--unshare-user", "--uid", str(self.user), "--gid", str(self.user)]

    def _become_user(self) -> list[str]:
        if self.user is None or os.geteuid() != 0:
            return []
        # bubblewrap leaves root its capabilities; these are gone for good.
        become = [_SETPRIV, f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups", "--no-new-privs"]
        return [*become, "--inh-caps=-all", "--bounding-set=-all", "--"]

    def run(
        self, command: Sequence[str], environment: Mapping[str, str], *, timeout: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, with its output; raises subprocess.TimeoutExpired."""
        return subprocess.run(
            self.arguments(command),
            env=dict(environment),
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=timeout,
        )


def _parents(paths: Iterable[str]) -> list[str]:
    """The directories above these absolute paths, each after the one above it, but for the root."""
    return sorted({str(above) for path in paths for above in PurePosixPath(path).parents} - {"/"})


def _root(source: Path, *, own: bool) -> Iterator[str]:
    """The root of the sandbox is an empty one, where each entry of `source` is mounted: mount points can be added."""
    for entry in sorted(source.iterdir()):
        if entry.name == "etc" or (own and entry.name in _OWN_MOUNTS):
            continue
        yield from _shown(entry, f"/{entry.name}")
    if (source / "etc").is_dir():
        for entry in sorted((source / "etc").iterdir()):
            if entry.name not in ("hosts", "qim"):
                yield from _shown(entry, f"/etc/{entry.name}")


def _shown(entry: Path, at: str) -> Iterator[str]:
    if entry.is_symlink():
        # Links of /etc may lead to /run, which is not there.
        yield from ("--symlink", str(entry.readlink()), at)
    else:
        yield from ("--ro-bind", str(entry), at)
