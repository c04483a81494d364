"""Which settings make an instance unsafe, as a table; the real server is asked in the integration tests."""

from __future__ import annotations

import pytest

from qim_common.redis.safety import find_problems

SAFE: dict[str, str | None] = {
    "appendonly": "yes",
    "appendfsync": "always",
    "no-appendfsync-on-rewrite": "no",
    "maxmemory-policy": "noeviction",
    "dir": "/data",
    "aof-load-truncated": "yes",
}
VALKEY = {"server_name": "valkey", "valkey_version": "9.1.2", "redis_version": "7.2.4"}
PRIMARY = {"role": "master"}


def test_a_safe_instance_has_no_problem() -> None:
    assert find_problems(SAFE, VALKEY, PRIMARY) == []


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("appendonly", "no"),
        ("appendfsync", "everysec"),
        ("appendfsync", "no"),
        ("no-appendfsync-on-rewrite", "yes"),
        ("maxmemory-policy", "allkeys-lru"),
        ("maxmemory-policy", "volatile-ttl"),
        ("dir", ""),
        ("dir", None),
        ("appendfsync", None),
    ],
)
def test_one_unsafe_setting_is_named(setting: str, value: str | None) -> None:
    problems = find_problems({**SAFE, setting: value}, VALKEY, PRIMARY)
    assert len(problems) == 1
    assert problems[0].startswith(f"{setting} is ")


def test_all_problems_are_named_together() -> None:
    problems = find_problems({}, {}, {})
    assert [problem.split()[0] for problem in problems] == [
        "appendonly",
        "appendfsync",
        "no-appendfsync-on-rewrite",
        "maxmemory-policy",
        "dir",
        "aof-load-truncated",
        "it",
    ]


@pytest.mark.parametrize(
    ("server", "load_truncated", "safe"),
    [
        ({"server_name": "valkey", "valkey_version": "9.1.0"}, "yes", True),
        ({"server_name": "valkey", "valkey_version": "10.0.1"}, "yes", True),
        ({"server_name": "valkey", "valkey_version": "9.0.3"}, "yes", False),
        ({"server_name": "valkey", "valkey_version": "8.1.4"}, "yes", False),
        ({"server_name": "valkey", "valkey_version": "8.1.4"}, "no", True),
        ({"server_name": "valkey"}, "yes", False),
        ({"server_name": "valkey", "valkey_version": "unstable"}, "yes", False),
        ({"redis_version": "7.0.15"}, "yes", False),
        ({"redis_version": "7.0.15"}, "no", True),
        ({"redis_version": "9.9.9"}, "yes", False),
        ({}, "yes", False),
    ],
)
def test_a_torn_append_only_file_is_safe_only_with_a_server_that_drops_it_or_refuses_it(
    server: dict[str, str], load_truncated: str, safe: bool
) -> None:
    problems = find_problems({**SAFE, "aof-load-truncated": load_truncated}, server, PRIMARY)
    assert (problems == []) is safe
    assert all(problem.startswith("aof-load-truncated") for problem in problems)


@pytest.mark.parametrize("replication", [{"role": "slave"}, {}])
def test_a_replica_is_refused(replication: dict[str, str]) -> None:
    (problem,) = find_problems(SAFE, VALKEY, replication)
    assert problem.startswith("it is a replica")
