"""How far an import has come, durably: a small file that is replaced as a whole and fsynced after each answered line.

One process at a time holds a cursor (a lock file beside it).
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

_VERSION: Final = 1


class CursorError(Exception):
    """A cursor cannot be used; the message tells why and what to do."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where an import stands.

    Attributes:
        import_id: 32 hex digits, made when the import began; part of every request id.
        ids_ms: the time in the request ids, milliseconds since the epoch.
        plan: what was asked for, by option; a resumed import has to ask for the same.
        size, digest: of the history; it may have grown when the import is resumed.
        created: the group exists.
        line, offset: how many lines of the file, and bytes, are answered.
        done, refused: how many lines that say something were carried out, and refused.
        ahead: lines behind `line` that were refused before the import stopped; they are not tried again.
    """

    import_id: str
    ids_ms: int
    plan: Mapping[str, str]
    size: int
    digest: str
    created: bool = False
    line: int = 0
    offset: int = 0
    done: int = 0
    refused: int = 0
    ahead: tuple[int, ...] = ()


class CursorFile:
    """The file of one import. Use it as a context manager, which holds the lock.

    Raises CursorError on entering where another process holds it, or where the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cursor: Cursor | None = None
        self._lock: int | None = None
        self._directory: int | None = None

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.path.with_name(f"{self.path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.cursor = _read(self.path)
            self._directory = os.open(self.path.parent, os.O_RDONLY)
        except BlockingIOError:
            os.close(lock)
            raise CursorError(f"{self.path}: another import is using it; wait for it, or stop it") from None
        except BaseException:
            os.close(lock)
            raise
        self._lock = lock
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for descriptor in (self._directory, self._lock):
            if descriptor is not None:
                os.close(descriptor)
        self._directory = self._lock = None

    async def save(self, cursor: Cursor) -> None:
        """Replace the cursor; returns when it is durable. Not to be called again before that."""
        self.cursor = cursor
        await asyncio.to_thread(self._write, cursor)

    def _write(self, cursor: Cursor) -> None:
        if self._directory is None:
            raise CursorError(f"{self.path}: is not open")
        values = {field.name: getattr(cursor, field.name) for field in fields(cursor)}
        data = json.dumps({"version": _VERSION, **values, "plan": dict(cursor.plan)}, indent=1).encode()
        temporary = self.path.with_name(f"{self.path.name}.new")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            os.write(descriptor, data)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(self.path)
        os.fsync(self._directory)


def _read(path: Path) -> Cursor | None:
    try:
        document: dict[str, Any] = json.loads(path.read_text("utf-8"))
        if document.pop("version") != _VERSION:
            raise CursorError(f"{path}: is of another version of qim; finish the import with that one")
        cursor = Cursor(**document | {"ahead": tuple(document["ahead"])})
        if len(bytes.fromhex(cursor.import_id)) != 16 or min(cursor.ids_ms, cursor.line, cursor.offset) < 0:
            raise ValueError("numbers out of range")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CursorError(
            f"{path}: is no cursor of an import ({error}); name another file, or remove it to begin anew"
        ) from None
    return cursor
