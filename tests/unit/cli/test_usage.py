"""Wrong usage of `qim` and `qimctl` ends with 2, a faulty configuration with 1; each says what to do."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from qim_admin import cli as qimctl
from qim_admin.cli_session import Output, Session, refusal
from qim_client.presentation import OutputFormat
from qim_common.errors import BackendUnavailable, PermissionDenied, QimError
from qim_common.ids import show
from qim_devkit import cli as qim
from qim_devkit.cli_session import Session as QimSession

UUID = "02000000-0000-0000-0000-000000000007"
SECTION = 'tenant = 1\ncert = "a.crt"\nkey = "a.key"\nca = "ca.crt"\n'
Main = Callable[[Sequence[str]], None]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "client.toml"
    path.write_text(
        f'[gateway]\nwriter = "127.0.0.1:1"\nsession = "127.0.0.1:1"\n{SECTION}'
        f'[operator]\nadmin = "127.0.0.1:1"\n{SECTION}'
    )
    monkeypatch.setenv("QIM_CONFIG", str(path))
    monkeypatch.delenv("QIM_AS", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    return path


def end(main: Main, arguments: Sequence[str]) -> object:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["group", "show"], "GROUP"),
        (["group", "show", "hikers"], "is not a UUID"),
        (["group", "show", "01000000-0000-0000-0000-000000000007"], "is not a group id"),
        (["membership", "add", UUID], "name people"),
        (["membership", "add", UUID, "ben"], "is not a UUID"),
        (["membership", "add", UUID, UUID, "--initiator", "x"], "--initiator: is not a UUID"),
        (["membership", "add", UUID, UUID, "--owner", "03000000-0000-0000-0000-000000000007"], "people added"),
        (["membership", "add", UUID, "--file", "nowhere.txt"], "cannot be read"),
        (["membership", "remove", UUID, UUID, "--leaver-history", "some"], "--leaver-history"),
        (["group", "set", UUID], "at least one setting"),
        (["group", "set", UUID, "--newcomer", "last:0"], "last:N"),
        (["group", "set", UUID, "--rejoin", "some"], "--rejoin"),
        (["group", "set", UUID, "--broadcast-max", "501"], "--broadcast-max"),
        (["group", "set", UUID, "--retention-days", "36501"], "--retention-days"),
        (["group", "owner", UUID], "USER"),
        (["group", "clear", UUID, "--up-to", "0"], "--up-to"),
        (["group", "clear", UUID, "--up-to", str(2**53)], "--up-to"),
        (["group", "freeze", "hikers"], "is not a UUID"),
        (["explain", "--group", UUID, "--user", UUID], "--seq"),
        (["explain", "--group", UUID, "--user", UUID, "--seq", "0"], "--seq"),
        (["explain", "--group", UUID, "--user", "ben", "--seq", "1"], "is not a UUID"),
        (["timeline"], "--group"),
        (["timeline", "--group", UUID, "--file", "x.svg"], "--output svg"),
        (["timeline", "--group", UUID, "--people", "0"], "--people"),
        (["group", "show", UUID, "--output", "svg"], "timeline only"),
        (["group", "show", UUID, "--tenant", "0"], "--tenant"),
        (["group", "show", UUID, "--timeout", "0"], "--timeout"),
        (["group", "show", UUID, "--output", "xml"], "--output"),
        (["unknown"], "unknown"),
    ],
)
def test_wrong_usage_of_qimctl(
    config: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert end(qimctl.main, arguments) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["list"], "QIM_AS"),
        (["--as", "-ana", "list"], "does not begin"),
        (["--as", "ana", "send", "hikers"], "TEXT"),
        (["--as", "ana", "send", "@", "hello"], "must not be empty"),
        (["--as", "ana", "group", "create", "hikers", "--newcomer", "last:0"], "last:N"),
        (["--as", "ana", "group", "create", "hikers", "--newcomer", "last:1000000001"], "last:N"),
        (["--as", "ana", "group", "create", "hikers", "--newcomer", "some"], "last:N"),
        (["--as", "ana", "group", "create", "hikers", "--rejoin", "some"], "--rejoin"),
        (["--as", "ana", "history", "hikers", "--limit", "1001"], "--limit"),
        (["--as", "ana", "history", "hikers", "--from", "-1"], "--from"),
        (["--as", "ana", "leave", "@ben"], "does not begin"),
        (["--as", "ana", "read", "hikers", "0"], "SEQ"),
        (["--as", "ana", "clear", "hikers", "--up-to", "0"], "--up-to"),
        (["--as", "ana", "group", "clear", "hikers", "--up-to", str(2**53)], "--up-to"),
        (["--as", "ana", "group", "owner", "hikers"], "PERSON"),
        (["--as", "ana", "list", "-o", "svg"], "--output"),
        (["id", ""], "must not be empty"),
    ],
)
def test_wrong_usage_of_qim(config: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    assert end(qim.main, arguments) == 2
    assert said in capsys.readouterr().err


def test_a_file_of_ids_is_read_line_by_line_and_the_bad_line_named(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    people = tmp_path / "people.txt"
    people.write_text(f"# the hikers\n\n{UUID} # gus\nnobody\n")
    assert end(qimctl.main, ["membership", "add", UUID, "--file", str(people)]) == 2
    assert "people.txt line 4: is not a UUID" in capsys.readouterr().err


def test_a_comment_behind_an_id_is_no_part_of_it(config: Path, tmp_path: Path) -> None:
    people = tmp_path / "people.txt"
    people.write_text(f"  # the hikers\n {UUID} # gus\n{UUID}\t#cara\n")
    session = Session(None, None, Output.TABLE, 1.0)
    assert [show(user) for user in session.users_in(people)] == [UUID, UUID]


@pytest.mark.parametrize(("main", "name"), [(qimctl.main, "qimctl"), (qim.main, "qim")])
def test_the_version_is_printed_without_a_configuration(
    main: Main, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert end(main, ["--version"]) == 0
    assert re.fullmatch(rf"{name} \d+\.\d+\.\d+\n", capsys.readouterr().out)


def test_a_command_to_go_on_with_can_be_pasted() -> None:
    plain = QimSession(config=None, me="ana", device=None, tenant=None, output=OutputFormat.TABLE, timeout=1.0)
    script = Path(sys.executable).parent / "qim"
    words = shlex.split(plain.again("history", "two words", "--from", "4"))
    assert Path(words[0]).absolute() == script
    assert words[1:] == ["--as", "ana", "history", "two words", "--from", "4"]
    chosen = QimSession(config=Path("c.toml"), me="ana", device=None, tenant=2, output=OutputFormat.TABLE, timeout=1.0)
    assert shlex.split(chosen.again("list"))[1:] == ["--as", "ana", "--config", "c.toml", "--tenant", "2", "list"]


@pytest.mark.parametrize(
    ("typed", "error", "hinted"),
    [
        ("dana", PermissionDenied(), True),
        ("@dana", PermissionDenied(), False),
        (UUID, PermissionDenied(), False),
        ("dana", BackendUnavailable(), False),
    ],
)
def test_who_forgot_the_at_sign_is_told_how_a_person_is_typed(
    config: Path, typed: str, error: QimError, *, hinted: bool
) -> None:
    session = QimSession(config=config, me="ana", device=None, tenant=None, output=OutputFormat.TABLE, timeout=1.0)
    session.conversation(typed)
    assert ("the person is @dana." in session.refusal(error).hint) is hinted


def test_an_operator_is_told_that_a_denied_group_is_not_there() -> None:
    assert refusal(PermissionDenied()).lines() == [
        "PERMISSION_DENIED: no such group in this tenant",
        "Check the id and --tenant.",
    ]
    assert "no such group" not in " ".join(refusal(BackendUnavailable()).lines())


def test_a_file_without_ids_is_wrong_usage(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    people = tmp_path / "people.txt"
    people.write_text("# nobody\n")
    assert end(qimctl.main, ["membership", "add", UUID, "--file", str(people)]) == 2
    assert "name people" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("main", "arguments"),
    [(qimctl.main, ["group", "show", UUID]), (qim.main, ["--as", "ana", "list"])],
    ids=["qimctl", "qim"],
)
def test_without_a_configuration_both_say_what_to_run(
    main: Main,
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("QIM_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    assert end(main, arguments) == 1
    assert "make up" in capsys.readouterr().err


def test_a_refusal_is_one_json_object_where_json_was_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = tmp_path / "absent.toml"
    assert end(qimctl.main, ["group", "show", UUID, "--config", str(absent), "--output", "json"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert json.loads(captured.err)["error"]["reason"] == "CONFIGURATION"


def test_an_id_is_printed_without_a_suite(capsys: pytest.CaptureFixture[str]) -> None:
    assert end(qim.main, ["id", "ana", "--kind", "user"]) == 0
    assert capsys.readouterr().out == "16d153a5-2ca1-a8ee-51ab-fc8a2d6f41c8\n"
    assert end(qim.main, ["id", "ana", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["user"] == "16d153a5-2ca1-a8ee-51ab-fc8a2d6f41c8"


def test_a_chat_without_a_terminal_says_so_and_ends_with_2(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert end(qim.main, ["--as", "ana", "chat", "hikers"]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert captured.err.startswith("qim chat needs a terminal")
