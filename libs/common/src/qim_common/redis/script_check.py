"""The rules that every Lua script of the suite keeps, checked on its source (storage.md, "Scripts").

A script starts with a shebang, so that a server without memory refuses it whole instead of stopping in the middle; its
header says what goes in and comes out; and every key comes from KEYS, because a key that is put together inside would
live on another slot in cluster mode and nobody would notice before.

The key check reads tokens, not the grammar, and knows names, not scopes: a key argument must be a name (with indexes)
that is nowhere bound to something made: a literal, a concatenation, an argument of ARGV, a reply, or the result of a
function that returns such a thing. Running the scripts on a cluster-mode server shows what hides from this.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

HEADER_WORDS: Final = ("KEYS", "ARGV", "Returns", "Status")
"""Each begins a comment line of the header, in any case of letters, singular or plural."""

KEYLESS: Final = frozenset({"TIME", "PING", "ECHO"})
"""Commands without a key."""

KEY_AFTER_SUBCOMMAND: Final = frozenset({"XINFO"})
"""Commands whose first argument is a word and whose second is the key."""

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|--\[(?P<c>=*)\[.*?\](?P=c)\]|--[^\n]*)
    |(?P<string>'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|\[(?P<l>=*)\[.*?\](?P=l)\])
    |(?P<name>[A-Za-z_]\w*)
    |(?P<number>0[xX][0-9a-fA-F]+|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    |(?P<sign>\.\.\.|\.\.|==|~=|<=|>=|[^\s\w])""",
    re.VERBOSE | re.DOTALL,
)
_OPEN: Final = frozenset("([{")
_CLOSE: Final = frozenset(")]}")
_OPERATORS: Final = frozenset({"and", "or", "not"})
_STATEMENT: Final = frozenset(
    {"local", "if", "for", "while", "repeat", "until", "return", "end", "else", "elseif", "function", "do", "then"}
    | {"break", ";"}
)
_MADE_BY: Final = frozenset({"ARGV", "string", "table", "struct", "tostring", "cjson", "cmsgpack", "redis"})
"""What starts with one of these is no key of KEYS."""


def check_source(source: str) -> list[str]:
    """What breaks the rules, each with its line where there is one; empty for a good script.

    Args:
        source: with its includes, as `load_script` gives it.
    """
    return [*_check_header(source), *(f"line {line}: {words}" for line, words in _check_keys(_Tokens(source)))]


def _check_header(source: str) -> list[str]:
    first, _, rest = source.partition("\n")
    problems = []
    if not re.fullmatch(r"#!lua(\s+\w+=\S+)*\s*", first):
        problems.append("line 1: must be the shebang #!lua, with flags if need be")
    header = []
    for line in rest.splitlines():
        if not line.startswith("--"):
            break
        header.append(line.lstrip("- ").lower())
    missing = [w for w in HEADER_WORDS if not any(re.match(rf"{w.lower().rstrip('s')}s?\b", line) for line in header)]
    return problems + [f"header: no comment line starts with {word}" for word in missing]


class _Tokens:
    """The tokens of a source without blanks and comments; a string is one token that starts with its quote."""

    def __init__(self, source: str) -> None:
        body = re.sub(r"\A#![^\n]*", "", source)
        self.texts: list[str] = []
        self.lines: list[int] = []
        line = 1
        for match in _TOKEN.finditer(body):
            if match["space"] is None:
                self.texts.append("'" + match[0] if match[0].startswith(("[[", "[=")) else match[0])
                self.lines.append(line)
            line += match[0].count("\n")

    def parts(self, start: int) -> list[list[str]]:
        """The comma-separated expressions from `start` to the end of their bracket or statement."""
        found: list[list[str]] = [[]]
        depth = 0
        for index in range(start, len(self.texts)):
            text = self.texts[index]
            if depth == 0 and (text in _CLOSE or text in _STATEMENT or self._begins_statement(start, index)):
                break
            if depth == 0 and text == ",":
                found.append([])
                continue
            depth += (text in _OPEN) - (text in _CLOSE)
            found[-1].append(text)
        return [] if found == [[]] else found

    def _begins_statement(self, start: int, index: int) -> bool:
        """Whether a statement without a keyword begins here: an operand on a new line, after an operand."""
        if index == start or self.lines[index] == self.lines[index - 1]:
            return False
        text, before = self.texts[index], self.texts[index - 1]
        starts = (text[0].isalpha() or text[0] == "_") and text not in _OPERATORS
        return starts and before not in _OPERATORS and (before in _CLOSE or before[0].isalnum() or before[0] in "_'\"")


def _check_keys(tokens: _Tokens) -> Iterator[tuple[int, str]]:
    made, callers = _made_names(tokens)
    texts = tokens.texts
    for index, text in enumerate(texts[:-1]):
        direct = text in ("call", "pcall") and texts[max(index - 2, 0) : index] == ["redis", "."]
        renamed = text in callers and (index == 0 or texts[index - 1] not in (".", ":"))
        if texts[index + 1] != "(" or not (direct or renamed):
            continue
        args = tokens.parts(index + 2)
        line = tokens.lines[index]
        if not args or len(args[0]) != 1 or not _is_string(args[0][0]):
            yield line, "the command must be a literal string"
            continue
        command = args[0][0].strip("'\"").upper()
        if command in KEYLESS:
            continue
        if command in KEY_AFTER_SUBCOMMAND:
            del args[1:2]
        if len(args) == 1 or not _is_path(args[1]) or _is_made(args[1], made):
            found = " ".join(args[1]) if len(args) > 1 else "nothing"
            yield line, f"the key of {command} must come from KEYS, not be {found}"


def _made_names(tokens: _Tokens) -> tuple[frozenset[str], frozenset[str]]:
    """The names that are somewhere bound to something made, and the names of redis.call."""
    bindings: list[tuple[str, list[str]]] = []
    callers: set[str] = set()
    function = ""
    for index, text in enumerate(tokens.texts):
        if text == "function":
            function = tokens.texts[index + 1]
        elif text == "return" and (values := tokens.parts(index + 1)):
            bindings.append((function, values[0]))
        elif text == "=":
            values = tokens.parts(index + 1)
            for name, value in zip(_assigned(tokens.texts, index), values, strict=False):
                if value in (["redis", ".", "call"], ["redis", ".", "pcall"]):
                    callers.add(name)
                else:
                    bindings.append((name, value))
    made = set(callers)
    while new := {name for name, value in bindings if name not in made and _is_made(value, made)}:
        made |= new
    return frozenset(made), frozenset(callers)


def _assigned(texts: list[str], equals: int) -> list[str]:
    """The names on the left of an assignment, in order; empty for an element or a field, which is not followed."""
    names: list[str] = []
    index = equals - 1
    while index >= 0:
        simple = texts[index] != "]" and (index == 0 or texts[index - 1] != ".")
        names.insert(0, texts[index] if simple else "")
        if not simple or index < 2 or texts[index - 1] != ",":
            break
        index -= 2
    return names


def _is_made(expression: list[str], made: frozenset[str] | set[str]) -> bool:
    """Whether an expression is put together here instead of taken from KEYS; only its outermost level counts."""
    if expression[0] in _MADE_BY or expression[0] in made:
        return True
    depth = 0
    for text in expression:
        depth += (text in _OPEN) - (text in _CLOSE)
        if depth == 0 and (text == ".." or _is_string(text) or text[0].isdigit()):
            return True
    return False


def _is_path(expression: list[str]) -> bool:
    """Whether an expression is a name with any indexes and fields."""
    return re.fullmatch(r"[A-Za-z_]\w*(\s*\.\s*\w+|\s*\[.*\])*", " ".join(expression)) is not None


def _is_string(text: str) -> bool:
    return text[0] in "'\""
