"""Addresses of Redis instances as the configuration writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from qim_common.redis import AddressError, RedisAddress


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("redis-0:6380", RedisAddress(host="redis-0", port=6380)),
        ("  redis-0:6380 ", RedisAddress(host="redis-0", port=6380)),
        ("redis-0", RedisAddress(host="redis-0", port=6379)),
        ("[::1]:7000", RedisAddress(host="::1", port=7000)),
        ("redis://h:1/2", RedisAddress(host="h", port=1, database=2)),
        ("redis://h:1/", RedisAddress(host="h", port=1)),
        ("redis://:secret@h", RedisAddress(host="h", port=6379, password="secret")),
        ("rediss://app:p%40s%2Fs@h:2/1", RedisAddress("h", 2, "", True, "app", "p@s/s", 1)),
        ("unix:///run/valkey.sock", RedisAddress(path="/run/valkey.sock")),
        ("unix:///run/my%20valkey.sock?db=3", RedisAddress(path="/run/my valkey.sock", database=3)),
    ],
)
def test_every_form_is_read(text: str, expected: RedisAddress) -> None:
    assert RedisAddress.parse(text) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("http://h:1", "unknown scheme"),
        (":6379", "host is missing"),
        ("redis://", "host is missing"),
        ("h:port", "port a number"),
        ("h:70000", "port a number"),
        ("h:-1", "port a number"),
        ("h:0", "1-65535"),
        ("::1:7000", "host is missing"),
        ("fe80::1:7000", "IPv6"),
        ("a:1,b:2", "commas"),
        ("a,b:2", "commas"),
        ("a b:2", "blanks"),
        ("h:1/2", "redis://"),
        ("redis://h:1/two", "database must be a number"),
        ("redis://h:1/-1", "database must be a number"),
        ("redis://h:1/2/3", "database must be a number"),
        ("redis://h:1?db=2", "nothing may follow"),
        ("redis://app@h:1", "without a password"),
        ("unix://run/valkey.sock", "absolute path"),
        ("unix:///", "absolute path"),
        ("unix:///a.sock?timeout=1", "only ?db"),
    ],
)
def test_a_faulty_address_is_refused_with_the_way_to_write_it(text: str, said: str) -> None:
    with pytest.raises(AddressError) as refused:
        RedisAddress.parse(text)
    assert said in str(refused.value)
    assert "redis://user:password@host:port/db" in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "user:hunter2@h:1",
        "redis://user:hunter2@h:port",
        "redis://user:hunter2@h:1/x",
        "redis://user:hunter2#x@h:1",
        "redis://user:hunter2/x@h:1",
        "redis://user:hunter2@x@h:99999",
        "ftp://user:hunter2@h",
    ],
)
def test_a_refusal_never_shows_the_password(text: str) -> None:
    with pytest.raises(AddressError) as refused:
        RedisAddress.parse(text)
    assert "hunter2" not in str(refused.value)
    assert refused.value.__suppress_context__


def test_neither_repr_nor_str_shows_the_password() -> None:
    address = RedisAddress.parse("rediss://app:hunter2@h:2/1")
    assert str(address) == "rediss://h:2/1"
    assert "hunter2" not in repr(address)


@pytest.mark.parametrize(
    "text", ["h:1", "[::1]:7000", "unix:///run/v.sock?db=3", "unix:///run/v.sock", "rediss://h:2/1"]
)
def test_the_shown_form_is_read_again(text: str) -> None:
    assert str(RedisAddress.parse(text)) == text


LOGIN = ("app", Path("/run/password"))


@pytest.mark.parametrize(
    ("text", "login", "expected"),
    [
        ("h:1", LOGIN, ("app", "", LOGIN[1])),
        ("unix:///v.sock", ("", LOGIN[1]), ("", "", LOGIN[1])),
        ("redis://:own@h:1", LOGIN, ("", "own", None)),
        ("redis://me:own@h:1", LOGIN, ("me", "own", None)),
        ("h:1", ("app", None), ("", "", None)),
    ],
)
def test_a_login_is_for_addresses_that_have_none(
    text: str, login: tuple[str, Path | None], expected: tuple[str, str, Path | None]
) -> None:
    address = RedisAddress.parse(text).with_login(*login)
    assert (address.username, address.password, address.password_file) == expected
    assert str(address) == str(RedisAddress.parse(text))


@pytest.mark.parametrize(("text", "used"), [("rediss://h:1", True), ("redis://h:1", False), ("unix:///v.sock", False)])
def test_cas_are_for_encrypted_addresses(text: str, used: bool) -> None:
    ca = Path("/run/ca.crt")
    assert (RedisAddress.parse(text).with_ca(ca).tls_ca_file == ca) is used
