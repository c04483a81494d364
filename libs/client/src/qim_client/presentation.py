"""How answers and refusals look outside of Python: stable JSON, and text that is safe on a terminal. Pure."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum, StrEnum
from typing import Any, Final

from qim_common.errors import QimError, Reason
from qim_common.ids import ID_BYTES, show

_SUITE: Final = "Is the suite running (`make up`)? Does the client configuration name its addresses and certificates?"
_UNKNOWN: Final = "It may have been carried out: look before you repeat it."
_HINTS: Final[Mapping[str, str]] = {
    Reason.BACKEND_UNAVAILABLE: _UNKNOWN,
    Reason.ROLE_NOT_ALLOWED: "Check which certificate the client configuration names, and the bindings file.",
    Reason.TENANT_NOT_ALLOWED: "Check --tenant, and the bindings file of the services.",
    Reason.PERMISSION_DENIED: "Check the id and the tenant: an unknown group looks the same.",
    "UNAVAILABLE": _SUITE,
    "DEADLINE_EXCEEDED": f"{_UNKNOWN} Then try a longer --timeout.",
    "UNIMPLEMENTED": "This version of the service cannot do that yet.",
}
"""What a person at a command line can do, beyond the error's own words."""


CONFIGURATION: Final = "CONFIGURATION"
"""The reason that a faulty client configuration has on the command line; no service answers it."""


class OutputFormat(StrEnum):
    """How answers are printed."""

    TABLE = "table"
    JSON = "json"


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal for a person: its name, what happened, the fields at fault, and what to do (may be empty)."""

    reason: str
    message: str
    fields: tuple[tuple[str, str], ...]
    hint: str

    def lines(self) -> list[str]:
        """As text, the most important first."""
        fields = [f"  {name}: {description}" for name, description in self.fields if name not in self.message]
        return [f"{self.reason}: {self.message}", *fields, *([self.hint] if self.hint else [])]

    def as_json(self) -> dict[str, Any]:
        """As one JSON object."""
        fields = [{"field": name, "description": description} for name, description in self.fields]
        return {"error": {"reason": self.reason, "message": self.message, "fields": fields, "hint": self.hint}}


def explain(error: QimError) -> Refusal:
    """A refusal as a command line shows it."""
    reason = str(error.reason) or error.code.name
    fields = tuple((printable(item.field), printable(item.description)) for item in error.violations)
    return Refusal(reason, printable(error.message), fields, _HINTS.get(reason, ""))


def as_json(value: Any) -> Any:
    """An answer as what `json.dumps` takes: field names as they are, ids as UUIDs, enums by their lower-case names.

    The field `body` becomes `body_base64`, and `text` where it is UTF-8 (else null). Times stay milliseconds.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        document: dict[str, Any] = {}
        for field in dataclasses.fields(value):
            item = getattr(value, field.name)
            if field.name == "body":
                document["text"] = _utf8(item)
                document["body_base64"] = base64.b64encode(item).decode()
            else:
                document[field.name] = as_json(item)
        return document
    if isinstance(value, IntEnum):
        return value.name.lower()
    if isinstance(value, bytes):
        return show(value) if len(value) == ID_BYTES else base64.b64encode(value).decode()
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    return value


def json_text(document: Any, *, indent: int | None = None) -> str:
    """`document`, as of `as_json`, as JSON that cannot steer a terminal.

    What `str.isprintable` refuses (control, format and bidirectional characters, lone surrogates) is escaped.
    """
    text = json.dumps(document, ensure_ascii=False, indent=indent)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def body_text(body: bytes) -> str:
    """A body as one line of text; what is no text by its size only."""
    text = _utf8(body)
    return f"({len(body)} bytes, no text)" if text is None else printable(text)


def printable(text: str) -> str:
    """`text` as one line that cannot steer a terminal: line ends become `⏎`, other control characters `·`."""
    folded = text.replace("\r\n", "⏎").replace("\n", "⏎").replace("\t", " ")
    return "".join(character if character.isprintable() else "·" for character in folded)


def hoist_options(arguments: Iterable[str], options: frozenset[str]) -> list[str]:
    """`arguments` with the named options, each with its value, moved to the front, in their order.

    So a global option may stand anywhere on a command line: `show G --output json` is `--output json show G`.
    What follows `--` stays where it is.
    """
    front: list[str] = []
    rest: list[str] = []
    remaining = iter(arguments)
    for argument in remaining:
        if argument == "--":
            return [*front, *rest, argument, *remaining]
        if argument in options:
            front += [argument, *([value] if (value := next(remaining, None)) is not None else [])]
        elif argument.partition("=")[0] in options:
            front.append(argument)
        else:
            rest.append(argument)
    return [*front, *rest]


def listed(words: Iterable[str], *, at_most: int = 5) -> str:
    """`a`, `a and b`, `a, b and c`; beyond `at_most` words `a, b and 7 others`."""
    items = list(words)
    if len(items) > at_most:
        items = [*items[: at_most - 1], f"{len(items) - at_most + 1} others"]
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def shown(values: Iterable[bytes], name_of: Callable[[bytes], str]) -> list[str]:
    """The names of some ids, safe on a terminal."""
    return [printable(name_of(value)) for value in values]


def _utf8(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None
