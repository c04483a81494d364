"""Page and resume tokens (contracts.md, "Services")."""

import base64
from pathlib import Path

import pytest

from qim_common.errors import PageTokenInvalid
from qim_common.tokens import TokenKeyError, TokenSigner, parse_keys

METHOD = "/qim.session.v1.Session/ListConversations"
ANA = b"a" * 16
GROUP = b"\x02" + b"g" * 15
OLD, NEW = "11" * 32, "22" * 32


def _signer(tmp_path: Path, *keys: str) -> TokenSigner:
    path = tmp_path / "token.key"
    path.write_text("\n".join(keys) + "\n")
    return TokenSigner(path, interval=0)


@pytest.mark.parametrize("payload", [b"", b"\0", b"cursor", bytes(range(256))])
def test_a_token_opens_for_the_call_that_it_was_issued_for(tmp_path: Path, payload: bytes) -> None:
    signer = _signer(tmp_path, NEW)
    token = signer.issue(METHOD, 1, ANA, GROUP, payload)
    assert signer.open(METHOD, 1, ANA, GROUP, token) == payload


@pytest.mark.parametrize(
    "call",
    [
        ("/qim.session.v1.Session/PullMailbox", 1, ANA, GROUP),
        (METHOD, 2, ANA, GROUP),
        (METHOD, 1, b"b" * 16, GROUP),
        (METHOD, 1, ANA, b""),
        (METHOD, 1, ANA + GROUP, b""),
        (METHOD, 1, b"", ANA + GROUP),
    ],
)
def test_a_token_of_another_call_is_foreign(tmp_path: Path, call: tuple[str, int, bytes, bytes]) -> None:
    signer = _signer(tmp_path, NEW)
    token = signer.issue(METHOD, 1, ANA, GROUP, b"cursor")
    with pytest.raises(PageTokenInvalid):
        signer.open(*call, token)


def test_every_changed_or_cut_character_is_noticed(tmp_path: Path) -> None:
    signer = _signer(tmp_path, NEW)
    token = signer.issue(METHOD, 1, ANA, GROUP, b"cursor")
    forged = [token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :] for place in range(len(token))]
    for bad in [*forged, *(token[:length] for length in range(len(token))), token + "A", token + "=", " " + token]:
        with pytest.raises(PageTokenInvalid):
            signer.open(METHOD, 1, ANA, GROUP, bad)


@pytest.mark.parametrize("token", ["", "!", "ü", "A", "====", "A" * 100_000, base64.b64encode(bytes(40)).decode()])
def test_what_is_no_token_is_refused(tmp_path: Path, token: str) -> None:
    with pytest.raises(PageTokenInvalid):
        _signer(tmp_path, NEW).open(METHOD, 1, ANA, GROUP, token)


def test_a_rotation_keeps_old_tokens_valid_until_the_old_key_is_dropped(tmp_path: Path) -> None:
    signer = _signer(tmp_path, OLD)
    old = signer.issue(METHOD, 1, ANA, GROUP, b"x")

    _signer(tmp_path, NEW, OLD)
    assert signer.open(METHOD, 1, ANA, GROUP, old) == b"x"
    new = signer.issue(METHOD, 1, ANA, GROUP, b"x")
    assert new != old

    _signer(tmp_path, NEW)
    assert signer.open(METHOD, 1, ANA, GROUP, new) == b"x"
    with pytest.raises(PageTokenInvalid):
        signer.open(METHOD, 1, ANA, GROUP, old)


def test_a_bad_change_of_the_key_file_keeps_the_keys(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    signer = _signer(tmp_path, OLD)
    token = signer.issue(METHOD, 1, ANA, GROUP, b"x")

    (tmp_path / "token.key").write_text("short")

    assert signer.open(METHOD, 1, ANA, GROUP, token) == b"x"
    assert [record.message for record in caplog.records] == ["token keys not taken, keeping the old ones"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "0 lines"),
        (b"11" * 32 + b"\n" + b"22" * 32 + b"\n" + b"33" * 32, "3 lines"),
        (b"zz" * 32, "line 1 is not hexadecimal"),
        (b"11" * 32 + b"\n" + b"22" * 31, "line 2 is shorter"),
        (b"\xff" * 64, "line 1 is not hexadecimal"),
    ],
)
def test_a_bad_key_file_is_refused_without_repeating_it(content: bytes, words: str) -> None:
    with pytest.raises(TokenKeyError, match=words) as refused:
        parse_keys(content)
    assert "zz" not in str(refused.value)


def test_a_missing_key_file_is_refused_with_the_variable(tmp_path: Path) -> None:
    with pytest.raises(TokenKeyError, match="QIM_TOKEN_KEY_FILE"):
        TokenSigner(tmp_path / "none")
