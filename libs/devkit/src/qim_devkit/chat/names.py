"""The names that a chat shows, from the book that the other `qim` commands keep."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from qim_client.namebook import NameBook
from qim_client.names import as_uuid
from qim_client.presentation import printable
from qim_common.errors import InvalidArgument
from qim_common.ids import ConversationId, TenantId, UserId

SHORT: Final = 8
"""Characters of an id that has no name."""


class Names(Protocol):
    """Ids as people read them, safe on a terminal."""

    def person(self, user: bytes) -> str:
        """A person."""
        ...

    def conversation(self, conversation: ConversationId) -> str:
        """A conversation."""
        ...


class BookNames:
    """Names by a book in a file; it is read again where the file has changed.

    Parameters:
        path: the book; it may come into being later.
        tenant, me: for whom direct conversations are named.
    """

    def __init__(self, path: Path, tenant: TenantId, me: UserId) -> None:
        self._path, self._tenant, self._me = path, tenant, me
        self._stamp = self._stat()
        self._book = NameBook(path)
        self._people: dict[bytes, str] = {}
        self._conversations: dict[bytes, str] = {}

    def person(self, user: bytes) -> str:
        """See `Names`."""
        return self._look_up(self._people, user, lambda: self._book.show_user(user))

    def conversation(self, conversation: ConversationId) -> str:
        """See `Names`."""
        return self._look_up(
            self._conversations,
            conversation,
            lambda: self._book.show_conversation(conversation, self._tenant, self._me),
        )

    def _look_up(self, known: dict[bytes, str], key: bytes, show: Callable[[], str]) -> str:
        self._renew()
        if key not in known:
            shown = printable(show())
            known[key] = f"{shown[:SHORT]}…" if as_uuid(shown) else shown
        return known[key]

    def _renew(self) -> None:
        stamp = self._stat()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        with contextlib.suppress(InvalidArgument):  # a damaged book: the names known so far stay
            self._book = NameBook(self._path)
            self._people.clear()
            self._conversations.clear()

    def _stat(self) -> tuple[int, int]:
        try:
            found = self._path.stat()
        except OSError:
            return (0, 0)
        return (found.st_mtime_ns, found.st_ino)
