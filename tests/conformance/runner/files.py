"""Reads scenario files. Whatever is not in the format is refused with file, scenario and key named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from tests.conformance.runner import scenario as values
from tests.conformance.runner.document import Node, ScenarioFileError, load
from tests.conformance.runner.scenario import ABSENT, DENIED, Scenario, SettingsChange, Value

from qim_client import LeaverHistory, MemberState, NewcomerPolicy, RejoinHistory
from qim_common.errors import Reason


def read_files(paths: Sequence[Path]) -> list[Scenario]:
    """The scenarios of all files, in their order. Raises ScenarioFileError."""
    return [scenario for path in paths for scenario in read_file(path)]


def read_file(path: Path) -> list[Scenario]:
    """The scenarios of one file. Raises ScenarioFileError."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioFileError(f"{path}: cannot be read: {error}") from None
    return read_text(text, str(path))


def read_text(text: str, file: str) -> list[Scenario]:
    """The scenarios of a file's text; `file` names it in messages. Raises ScenarioFileError."""
    try:
        document = load(text)
    except (yaml.YAMLError, TypeError) as error:
        raise ScenarioFileError(f"{file}: is not YAML: {error}") from None
    if not isinstance(document, list) or not document:
        raise ScenarioFileError(f"{file}: must be a list of scenarios")
    scenarios = [_scenario(file, number, item) for number, item in enumerate(document, 1)]
    names = [scenario.name for scenario in scenarios]
    for at, name in enumerate(names):
        if name in names[:at]:
            raise ScenarioFileError(f"{file}: scenario {name!r}: name: comes twice in this file")
    return scenarios


def _scenario(file: str, number: int, document: Any) -> Scenario:
    named = document.get("name") if isinstance(document, dict) else None
    root = Node(file, repr(named) if isinstance(named, str) and named else f"number {number}", "", document)
    keys = root.children("name", "why", "group", "direct", "steps")
    for needed in ("name", "steps"):
        if needed not in keys:
            raise root.fail(f"lacks the key {needed}")
    if ("group" in keys) == ("direct" in keys):
        raise root.fail("must have either the key group or the key direct")
    steps: list[values.Operation | values.Expect] = []
    operations = 0
    for node in keys["steps"].items():
        step = _step(node, operations)
        operations += isinstance(step, values.Operation)
        steps.append(step)
    return Scenario(
        file=file,
        name=keys["name"].text(),
        why=keys["why"].text() if "why" in keys else "",
        start=_group(keys["group"]) if "group" in keys else _direct(keys["direct"]),
        steps=tuple(steps),
    )


def _group(node: Node) -> values.Group:
    keys = node.children("owner", "members", "settings", "limit")
    if "owner" not in keys:
        raise node.fail("lacks the key owner")
    settings = _settings(keys["settings"].children(*_SETTINGS)) if "settings" in keys else {}
    if "limit" in keys:
        settings["limit"] = keys["limit"].number(1)
    members = keys["members"].texts() if "members" in keys else ()
    return values.Group(keys["owner"].text(), members, SettingsChange(**settings))


def _direct(node: Node) -> values.Direct:
    people = node.texts()
    if len(people) != 2:
        raise node.fail("must name two people")
    return values.Direct((people[0], people[1]))


def _newcomer(node: Node) -> tuple[NewcomerPolicy, int]:
    if isinstance(node.value, dict):
        keys = node.children("LAST")
        if "LAST" not in keys:
            raise node.fail("lacks the key LAST")
        return NewcomerPolicy.LAST_N, keys["LAST"].number(1, 1_000_000_000)
    if node.value not in ("SINCE_JOIN", "ALL"):
        raise node.fail("must be SINCE_JOIN, ALL or {LAST: n}")
    return NewcomerPolicy[node.value], 0


def _rejoin(node: Node) -> RejoinHistory:
    return RejoinHistory[node.word(*RejoinHistory.__members__)]


def _leaver(node: Node) -> LeaverHistory:
    return LeaverHistory[node.word(*LeaverHistory.__members__)]


_SETTINGS: Final = {
    "newcomer_history": ("newcomer", _newcomer),
    "rejoin_history": ("rejoin", _rejoin),
    "leaver_history": ("leaver", _leaver),
    "broadcast_max": ("broadcast_max", lambda node: node.number(0, 2**32 - 1)),
}


def _settings(keys: dict[str, Node]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, node in keys.items():
        name, read = _SETTINGS[key]
        found[name] = read(node)
    return found


def _set(keys: dict[str, Node]) -> values.Set:
    found = _settings({key: node for key, node in keys.items() if key in _SETTINGS})
    if "limit" in keys:
        found["limit"] = keys["limit"].number(1)
    return values.Set(SettingsChange(**found))


def _users(node: Node) -> tuple[str, ...]:
    users = node.texts()
    if not users:
        raise node.fail("must name somebody")
    return users


def _remove(keys: dict[str, Node]) -> values.Remove:
    leaver = _leaver(keys["leaver_history"]) if "leaver_history" in keys else None
    return values.Remove(_users(keys["users"]), leaver)


def _up_to(keys: dict[str, Node]) -> int:
    return keys["up_to"].number(1) if "up_to" in keys else 0


@dataclass(frozen=True, slots=True)
class _Form:
    """How the mapping of one kind of step looks."""

    needed: tuple[str, ...]
    optional: tuple[str, ...]
    read: Callable[[dict[str, Node]], values.Action]


_FORMS: Final = {
    "send": _Form(("by",), ("n",), lambda k: values.Send(k["by"].text(), k["n"].number(1) if "n" in k else 1)),
    "add": _Form(("users",), (), lambda k: values.Add(_users(k["users"]))),
    "remove": _Form(("users",), ("leaver_history",), _remove),
    "leave": _Form(("by",), (), lambda k: values.Leave(k["by"].text())),
    "clear": _Form(("by",), ("up_to",), lambda k: values.Clear(k["by"].text(), _up_to(k))),
    "read": _Form(("by", "seq"), (), lambda k: values.Read(k["by"].text(), k["seq"].number(1))),
    "transfer": _Form(("to",), (), lambda k: values.Transfer(k["to"].text())),
    "set": _Form((), (*_SETTINGS, "limit"), _set),
    "clear_group": _Form((), ("up_to",), lambda k: values.ClearGroup(_up_to(k))),
    "retry": _Form(("step",), (), lambda k: values.Retry(k["step"].number())),
}
_OUTCOMES: Final = ("seq", "no_event", "error")


def _step(node: Node, number: int) -> values.Operation | values.Expect:
    keys = node.children(*_FORMS, "expect")
    if len(keys) != 1:
        raise node.fail(f"must have exactly one of the keys {', '.join((*_FORMS, 'expect'))}")
    ((kind, inner),) = keys.items()
    if kind == "expect":
        return _expect(inner)
    form = _FORMS[kind]
    # `seq` of a read is where it reads up to; it takes none itself.
    outcomes = tuple(key for key in _OUTCOMES if key not in form.needed)
    given = inner.children(*form.needed, *form.optional, *outcomes)
    for needed in form.needed:
        if needed not in given:
            raise inner.fail(f"lacks the key {needed}")
    action = form.read(given)
    if isinstance(action, values.Retry) and action.step >= number:
        raise given["step"].fail(f"must be the number of an earlier operation, below {number}")
    if len([key for key in outcomes if key in given]) > 1:
        raise inner.fail("has more than one of seq, no_event, error")
    return values.Operation(
        number=number,
        action=action,
        seq=given["seq"].number(1) if "seq" in outcomes and "seq" in given else None,
        no_event="no_event" in given and given["no_event"].truth(),
        error=given["error"].word(*Reason) if "error" in given else "",
    )


def _history(node: Node) -> Value:
    return DENIED if node.value == DENIED else node.seqs()


def _members(node: Node) -> Value:
    return DENIED if node.value == DENIED else tuple(sorted(node.texts()))


_EXPECTED: Final[dict[str, Callable[[Node], Value]]] = {
    "history": _history,
    "earliest": lambda node: DENIED if node.value == DENIED else node.number(),
    "unread": Node.number,
    "head": Node.number,
    "state": lambda node: node.word(*MemberState.__members__, ABSENT),
    "delivered": Node.seqs,
    "members": _members,
    "can_send": Node.truth,
    "owner": lambda node: None if node.value is None else node.text(),
}


def _expect(node: Node) -> values.Expect:
    people = node.children()
    return values.Expect(
        {
            name: {key: _EXPECTED[key](inner) for key, inner in person.children(*_EXPECTED).items()}
            for name, person in people.items()
        }
    )
