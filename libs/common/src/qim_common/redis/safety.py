"""The start-up check of an instance: would it lose data that it acknowledged?

With other settings than those demanded here, an acknowledgement at `ack_level` log would promise what a crash of the
process or the machine breaks (storage.md, "Backends").
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from qim_common.redis.connection import Connection
from qim_common.redis.errors import NotPermitted, RedisUnavailable, UnsafeRedis

SETTINGS: Final = (
    "appendonly",
    "appendfsync",
    "no-appendfsync-on-rewrite",
    "maxmemory-policy",
    "dir",
    "aof-load-truncated",
)
"""What is asked of the server with CONFIG GET."""

SAFE_TORN_AOF_VALKEY: Final = (9, 1)
"""From this Valkey on, a restart after a torn append-only file drops the torn transaction for good."""


async def check_instance(connection: Connection) -> None:
    """Refuse an instance that is not a durable store; a hook for `Instance.on_connected`.

    Raises:
        UnsafeRedis: with every setting that must change, and to what.
        BackendUnavailable: the instance cannot answer now.
    """
    commands = [*(("CONFIG", "GET", name) for name in SETTINGS), ("INFO", "server"), ("INFO", "replication")]
    replies = await connection.pipeline(commands)
    for reply in replies:
        if isinstance(reply, RedisUnavailable) and not isinstance(reply, NotPermitted):
            raise reply
    problems: list[str] = []
    refused = next((reply for reply in replies if isinstance(reply, Exception)), None)
    if refused is not None:
        problems.append(
            f"the check may not read the settings ({refused}): allow this user the commands CONFIG GET and INFO "
            "(ACL SETUSER <user> +config|get +info)"
        )
    else:
        settings = {name: _setting(reply) for name, reply in zip(SETTINGS, replies, strict=False)}
        problems = find_problems(settings, _info(replies[-2]), _info(replies[-1]))
    if problems:
        listed = "".join(f"\n  - {problem}" for problem in problems)
        raise UnsafeRedis(f"Redis {connection.address} could lose acknowledged messages; change this:{listed}")


def find_problems(
    settings: Mapping[str, str | None], server: Mapping[str, str], replication: Mapping[str, str]
) -> list[str]:
    """What makes an instance unsafe, each with its remedy; empty for a safe one. Pure.

    Args:
        settings: the values of `SETTINGS`, None where the server does not report one.
        server: the section `server` of INFO.
        replication: the section `replication` of INFO.
    """
    problems: list[str] = []

    def demand(name: str, wanted: str, reason: str) -> None:
        value = settings.get(name)
        if value != wanted:
            found = "not reported" if value is None else repr(value)
            problems.append(f"{name} is {found}, set it to {wanted}: {reason}")

    demand("appendonly", "yes", "without the append-only file a restart loses everything since the last snapshot")
    demand("appendfsync", "always", "anything else acknowledges before the data is on the disk")
    demand("no-appendfsync-on-rewrite", "no", "otherwise nothing is fsynced while the file is rewritten")
    demand("maxmemory-policy", "noeviction", "any eviction policy deletes messages when memory is full")
    if not settings.get("dir"):
        problems.append("dir is empty or not reported: set it to the persistence directory on a durable disk")
    if not _drops_torn_transactions(server):
        demand(
            "aof-load-truncated",
            "no",
            f"{_product(server)} can bring a torn commit back beside a newer one after two restarts; with `no` it "
            "refuses to load such a file, and redis-check-aof --fix mends it (Valkey from 9.1 on needs none of this)",
        )
    role = replication.get("role")
    if role != "master":
        problems.append(f"it is a replica (role {role or 'unknown'}): give the address of the primary instance")
    return problems


def _drops_torn_transactions(server: Mapping[str, str]) -> bool:
    numbers = re.match(r"(\d+)\.(\d+)", server.get("valkey_version", ""))
    if server.get("server_name") != "valkey" or numbers is None:
        return False
    return (int(numbers[1]), int(numbers[2])) >= SAFE_TORN_AOF_VALKEY


def _product(server: Mapping[str, str]) -> str:
    if server.get("server_name") == "valkey":
        return f"Valkey {server.get('valkey_version', 'of unknown version')}"
    return f"Redis {server.get('redis_version', 'of unknown version')}"


def _setting(reply: list[bytes]) -> str | None:
    return reply[1].decode(errors="replace") if len(reply) == 2 else None


def _info(reply: bytes) -> dict[str, str]:
    lines = reply.decode(errors="replace").splitlines()
    return {name: value for name, colon, value in (line.partition(":") for line in lines) if colon}
