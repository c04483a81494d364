"""The append-only file of an embedded Valkey: where its last commit stands, and a copy that ends inside of it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

_BEGIN: Final = b"*1\r\n$5\r\nMULTI\r\n"
_END: Final = b"*1\r\n$4\r\nEXEC\r\n"


def append_only_file(directory: Path) -> Path:
    """The file that a server with this directory appends to."""
    return max((directory / "appendonlydir").glob("*.incr.aof"), key=lambda path: int(path.name.split(".")[-3]))


@dataclass(frozen=True)
class Commit:
    """Bytes `first` to `end` (exclusive) of a server's append-only file: what one script call wrote."""

    directory: Path
    first: int
    end: int

    @classmethod
    def of(cls, directory: Path, content: bytes) -> Self:
        """The first commit that has this content, each of its commands as one transaction."""
        data = append_only_file(directory).read_bytes()
        at = data.index(content)
        return cls(directory, data.rindex(_BEGIN, 0, at), data.index(_END, at) + len(_END))

    def cut(self, size: int) -> None:
        """The file ends after so many bytes, as when the rest never reached the disk. No server may run on it."""
        with append_only_file(self.directory).open("r+b") as file:
            file.truncate(size)

    def copied(self, directory: Path, size: int) -> None:
        """Another directory has the data, cut; what was there is gone."""
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(self.directory, directory, ignore=shutil.ignore_patterns("*.log", "*.conf"))
        type(self)(directory, self.first, self.end).cut(size)
