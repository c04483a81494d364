"""Lua scripts: loaded from package data, called by their hash, loaded again where an instance has forgotten them.

A server forgets its scripts on a restart, a failover and SCRIPT FLUSH, and answers NOSCRIPT without executing anything,
so that one repeat after a load is safe. Nothing else is ever repeated.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Final

from qim_common.redis.connection import Argument, Connection, checked
from qim_common.redis.errors import NoScript
from qim_common.redis.instance import Instance

_INCLUDE: Final = re.compile(r"^-- @include (\w+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """One Lua script.

    Attributes:
        name: the operation, such as `send`.
        source: starts with `#!lua` (`qim_common.redis.script_check` says what else it must keep).
        sha1: what EVALSHA takes, 40 hexadecimal digits.
    """

    name: str
    source: str = field(repr=False)
    sha1: str = field(init=False)

    def __post_init__(self) -> None:
        digest = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()
        object.__setattr__(self, "sha1", digest)


def load_script(package: str, name: str) -> Script:
    """Read `<package>/lua/<name>.lua`, for example `load_script("qim_writer", "send")`.

    A line `-- @include <part>` is replaced by `<package>/lua/include/<part>.lua` or, where the package has none of that
    name, by the part that services share, `qim_common/lua/include/<part>.lua`.

    Raises:
        FileNotFoundError: the package has no such script or part.
    """
    folder = resources.files(package) / "lua"
    shared = resources.files("qim_common") / "lua"

    def included(line: re.Match[str]) -> str:
        own = folder / "include" / f"{line[1]}.lua"
        part = own if own.is_file() else shared / "include" / f"{line[1]}.lua"
        return part.read_text(encoding="utf-8").rstrip("\n")

    return Script(name, _INCLUDE.sub(included, (folder / f"{name}.lua").read_text(encoding="utf-8")))


class ScriptLoader:
    """A hook of `Instance.on_connected` that loads scripts, so that the first calls need no second round."""

    def __init__(self, scripts: Iterable[Script]) -> None:
        self._scripts = tuple(scripts)

    async def __call__(self, connection: Connection) -> None:
        """Load them all.

        Raises:
            ReplyError: one does not compile.
        """
        checked(await connection.pipeline([("SCRIPT", "LOAD", script.source) for script in self._scripts]))


def submit(
    instance: Instance, script: Script, keys: Sequence[Argument], args: Sequence[Argument]
) -> asyncio.Future[Any]:
    """Write one script call now and return its future reply.

    Calls are executed in the order of submission, with one exception: a call that met NOSCRIPT runs after those that
    were written before its repeat, some of which may find the script that another client has loaded meanwhile. Whoever
    needs an order between two calls waits for the first.

    Returns:
        The future script reply. It fails with `BackendUnavailable` (not executed), `ConnectionLost` (unknown) or
        `ReplyError` (the script broke: a programming error).

    Raises:
        TypeError: an argument is none of bytes, str and int; nothing was written.
    """
    call: tuple[Argument, ...] = ("EVALSHA", script.sha1, len(keys), *keys, *args)
    outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def first(reply: asyncio.Future[Any]) -> None:
        error = reply.exception()
        if outcome.done():
            return
        if error is None:
            outcome.set_result(reply.result())
        elif isinstance(error, NoScript):
            again = instance.pipeline([("SCRIPT", "LOAD", script.source), call])
            again.add_done_callback(second)
        else:
            outcome.set_exception(error)

    def second(replies: asyncio.Future[list[Any]]) -> None:
        error = replies.exception()
        if outcome.done():
            return
        if error is not None:
            outcome.set_exception(error)
            return
        # Where the load failed, its error is the cause of the second NOSCRIPT.
        failed = next((reply for reply in replies.result() if isinstance(reply, Exception)), None)
        if failed is not None:
            outcome.set_exception(failed)
        else:
            outcome.set_result(replies.result()[1])

    instance.call(*call).add_done_callback(first)
    return outcome


async def run(instance: Instance, script: Script, keys: Sequence[Argument], args: Sequence[Argument]) -> Any:
    """Call a script and wait for its reply; raises what the future of `submit` fails with."""
    return await submit(instance, script, keys, args)
