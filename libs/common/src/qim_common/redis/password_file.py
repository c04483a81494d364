"""A password that lies in a file, as a mounted secret does (docs/security.md, "Redis")."""

from __future__ import annotations

import codecs
from pathlib import Path


class PasswordFileError(ValueError):
    """The file cannot be taken; the message says why, without anything of its content."""


def read_password(path: Path) -> bytes:
    """The content of the file without line ends behind it and the mark of UTF-8 before it; whatever bytes it holds.

    Raises:
        PasswordFileError: it cannot be read, is empty, or has several lines.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise PasswordFileError(f"cannot be read: {error.strerror}") from None
    password = content.removeprefix(codecs.BOM_UTF8).rstrip(b"\r\n")
    if not password.strip():
        raise PasswordFileError("is empty; write the password into it, on one line")
    if b"\n" in password:
        raise PasswordFileError("has several lines; write the password alone, on one line")
    return password
