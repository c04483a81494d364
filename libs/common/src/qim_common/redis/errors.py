"""What can go wrong with a Redis instance.

`RedisUnavailable` means that the command was certainly not executed, its subclass `ConnectionLost` that nobody knows.
Both are the reason BACKEND_UNAVAILABLE towards callers, who are told neither addresses nor the server's words.
`FencedInstance` is the reason INSTANCE_FENCED: nothing was executed, and nothing will be before a recovery.
"""

# ruff: noqa: N818 - the classes say what happened, as those of qim_common.errors do

from __future__ import annotations

from typing import Final

from qim_common.errors import BackendUnavailable, InstanceFenced
from qim_common.start import StartRefusedError

_UNAVAILABLE_CODES: Final = frozenset(
    {
        "BUSY",  # another script holds the instance
        "CLUSTERDOWN",
        "LOADING",  # it reads its data after a restart
        "MISCONF",  # it cannot write its append-only file
        "NOREPLICAS",
        "OOM",  # scripts with a shebang are refused whole
        "TRYAGAIN",
    }
)
"""Error codes by which an instance refuses a command before executing anything of it."""


class RedisUnavailable(BackendUnavailable):
    """An instance cannot serve now; the command was not executed.

    Attributes:
        detail: which instance and why, for logs; never sent to a caller.
    """

    def __init__(self, detail: str) -> None:
        super().__init__()
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"


class ConnectionLost(RedisUnavailable):
    """The connection dropped before the reply: the outcome is unknown, and only a retry with the same id is safe."""


class Demoted(RedisUnavailable):
    """The instance has become a replica: the connection that says so is dropped, and the next one checked anew."""


class NotPermitted(RedisUnavailable):
    """The user of the connection may not do this, until whoever runs the server grants it."""


class FencedInstance(InstanceFenced):
    """The instance may have gone back in time; nothing is executed there before it is recovered (storage.md, "Fence").

    Attributes:
        detail: which instance and why, for logs; never sent to a caller.
    """

    def __init__(self, detail: str) -> None:
        super().__init__()
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"


class ReplyError(Exception):
    """An error reply that a correct program does not get.

    Attributes:
        code: its first word, such as WRONGTYPE.
        message: all of it.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
        self.code = message.partition(" ")[0]


class NoScript(ReplyError):
    """EVALSHA of a script that the instance does not hold; nothing was executed."""


class StartRefused(StartRefusedError):
    """The instance must not be used as it is; a service does not start on it. The message says what to change."""


class HandshakeRefused(StartRefused):
    """The server refused user, password, database or the connection's name."""


class UnusableFile(StartRefused):
    """QIM_REDIS_PASSWORD_FILE or QIM_REDIS_TLS_CA_FILE cannot be used now."""


class UnsafeRedis(StartRefused):
    """The server's settings could lose acknowledged data (storage.md, "Backends": what an acknowledgement survives)."""


class TopologyMismatch(StartRefused):
    """The stored fingerprint differs from the configuration (storage.md, "Where a key lives")."""


def error_of_reply(text: str) -> Exception:
    """The exception for an error reply: `RedisUnavailable` where the instance cannot serve now, else `ReplyError`."""
    code = text.partition(" ")[0]
    if code in ("READONLY", "MASTERDOWN"):
        return Demoted(f"Redis refused: {text}")
    if code == "NOPERM":
        return NotPermitted(f"Redis refused: {text}")
    if code in _UNAVAILABLE_CODES:
        return RedisUnavailable(f"Redis refused: {text}")
    if code == "NOSCRIPT":
        return NoScript(text)
    return ReplyError(text)
