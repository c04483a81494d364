"""The rules of Lua sources: on examples, and on every script of the suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from qim_common.redis import load_script
from qim_common.redis.script_check import check_source

ROOT = Path(__file__).parents[3]
SCRIPTS = sorted([*ROOT.glob("services/*/src/*/lua/*.lua"), *ROOT.glob("libs/*/src/**/lua/*.lua")])
HEADER = "#!lua\n-- KEYS[1] a\n-- ARGV none\n-- Returns nothing\n-- Status codes: none\n"


def _package(path: Path) -> str:
    folder = path.parent.parent
    names = folder.relative_to(next(parent for parent in folder.parents if parent.name == "src")).parts
    return ".".join(names)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: f"{_package(path)}:{path.stem}")
def test_every_script_of_the_suite_keeps_the_rules(path: Path) -> None:
    assert check_source(load_script(_package(path), path.stem).source) == []


def test_the_scripts_of_this_library_are_among_those_checked() -> None:
    assert "claim_topology" in {path.stem for path in SCRIPTS}


@pytest.mark.parametrize(
    "body",
    [
        "return redis.call('GET', KEYS[1])",
        "redis.pcall('SET', KEYS[#KEYS], 'a' .. ARGV[1])",
        "local key = KEYS[1]\nredis.call('HSET', key, 'f', ARGV[1])",
        "local a, b = KEYS[1], KEYS[2]\nredis.call('DEL', a)\nredis.call('DEL', b)",
        "for i, key in ipairs(KEYS) do redis.call('DEL', key) end",
        "local k = { rec = KEYS[1], ctl = KEYS[2] }\nredis.call('DEL', k.rec)",
        "local k = {}\nk.rec = KEYS[1]\nredis.call('DEL', k.rec)",
        "local at = 1\nlocal rec = KEYS[at + 1]\nredis.call('DEL', rec)",
        "local call = redis.call\ncall('GET', KEYS[1])",
        "local function put(key, value) redis.call('SET', key, 'x' .. value) end\nput(KEYS[1], ARGV[1])",
        "local first = function(keys) return keys[1] end\nlocal key = first(KEYS)\nredis.call('GET', key)",
        "local now = redis.call('TIME')",
        "redis.call('XINFO', 'STREAM', KEYS[1])",
        "redis.call('HSET', KEYS[1], unpack(ARGV))",
        "-- redis.call('GET', 'x')\n--[[ redis.call('GET', 'y') ]]\nreturn \"redis.call('GET', 'z')\"",
        "local key = KEYS[1]\nlocal name = 'a' .. ARGV[1]\nredis.call('HGET', key, name)",
    ],
)
def test_keys_that_come_from_keys_pass(body: str) -> None:
    assert check_source(HEADER + body) == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("redis.call('GET', 'x')", "line 6: the key of GET"),
        ("redis.call('XINFO', 'STREAM', 'x')", "line 6: the key of XINFO"),
        ("\n\nredis.pcall('get', [[x]])", "line 8: the key of GET"),
        ("redis.call('GET', KEYS[1] .. ':x')", "the key of GET"),
        ("redis.call('GET', ARGV[1])", "the key of GET"),
        ("redis.call('GET', 1)", "the key of GET"),
        ("redis.call('GET')", "not be nothing"),
        ("redis.call('GET', string.format('%s:x', KEYS[1]))", "the key of GET"),
        ("local k = KEYS[1] .. 'x'\nredis.call('GET', k)", "the key of GET"),
        ("local k\nk = 'x'\nredis.call('GET', k)", "the key of GET"),
        ("local a, k = KEYS[1], ARGV[1]\nredis.call('GET', a)\nredis.call('GET', k)", "line 8: the key of GET"),
        ("local k = redis.call('HGET', KEYS[1], 'next')\nredis.call('GET', k)", "the key of GET"),
        ("local call = redis.call\ncall('GET', 'x')", "the key of GET"),
        (
            "local function key_of(id)\n  return 'm:' .. id\nend\nlocal k = key_of(1)\nredis.call('GET', k)",
            "the key of GET",
        ),
        ("local function key_of(id) return 'm:' .. id end\nredis.call('GET', key_of(1))", "the key of GET"),
        ("local c = 'GET'\nredis.call(c, KEYS[1])", "literal string"),
        ("redis.call()", "literal string"),
        ("redis.call(unpack(ARGV))", "literal string"),
    ],
)
def test_a_key_that_is_made_inside_is_found(body: str, said: str) -> None:
    (problem,) = check_source(HEADER + body)
    assert said in problem


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (HEADER.replace("#!lua", ""), "shebang"),
        (HEADER.replace("#!lua", "#!python"), "shebang"),
        (HEADER.replace("-- KEYS[1] a\n", ""), "KEYS"),
        (HEADER.replace("-- ARGV none\n", ""), "ARGV"),
        (HEADER.replace("-- Returns nothing\n", ""), "Returns"),
        (HEADER.replace("-- Status codes: none\n", ""), "Status"),
        (HEADER.replace("-- Status", "local x = 1\n-- Status"), "Status"),
    ],
)
def test_an_incomplete_header_is_found(source: str, said: str) -> None:
    (problem,) = check_source(source)
    assert said in problem


def test_flags_in_the_shebang_are_allowed() -> None:
    assert check_source(HEADER.replace("#!lua", "#!lua flags=no-writes,allow-stale")) == []
