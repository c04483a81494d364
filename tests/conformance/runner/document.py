"""A YAML document with a place for every value, so that a fault names file, scenario and key."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final

import yaml
from tests.conformance.runner.scenario import SeqSet, as_ranges

SEQ_MAX: Final = 2**53 - 1


class ScenarioFileError(Exception):
    """A file is not in the format; the message names file, scenario and key."""


_MERGE: Final = "tag:yaml.org,2002:merge"


class _Loader(yaml.SafeLoader):
    """Plain YAML in which no key may come twice: the later one would silently win."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Hashable, Any]:
    keys = [loader.construct_object(key) for key, _ in node.value if key.tag != _MERGE]
    for at, key in enumerate(keys):
        if key in keys[:at]:
            raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} comes twice", node.start_mark)
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def load(text: str) -> Any:
    """The document. Raises yaml.YAMLError or TypeError where it is not YAML."""
    return yaml.load(text, _Loader)  # noqa: S506  a subclass of SafeLoader


@dataclass(frozen=True, slots=True)
class Node:
    """A value in the document and where it stands. Every method raises ScenarioFileError for anything else."""

    file: str
    scenario: str
    key: str
    value: Any

    def fail(self, fault: str) -> ScenarioFileError:
        """The error to raise."""
        where = f": {self.key}" if self.key else ""
        return ScenarioFileError(f"{self.file}: scenario {self.scenario}{where}: {fault}")

    def children(self, *known: str) -> dict[str, Node]:
        """The entries of a mapping; `known` may be given, others not; without `known` any name."""
        if not isinstance(self.value, dict):
            raise self.fail("must be a mapping")
        found: dict[str, Node] = {}
        for key, value in self.value.items():
            node = Node(self.file, self.scenario, f"{self.key}.{key}" if self.key else str(key), value)
            if not isinstance(key, str) or not key:
                raise node.fail("a key must be a text")
            if known and key not in known:
                raise node.fail(f"is no key of this format; here are: {', '.join(known)}")
            found[key] = node
        return found

    def items(self) -> list[Node]:
        """The elements of a list."""
        if not isinstance(self.value, list):
            raise self.fail("must be a list")
        return [Node(self.file, self.scenario, f"{self.key}[{at}]", item) for at, item in enumerate(self.value)]

    def text(self) -> str:
        """A text that is not empty."""
        if not isinstance(self.value, str) or not self.value:
            raise self.fail("must be a text")
        return self.value

    def texts(self) -> tuple[str, ...]:
        """A list of such texts."""
        return tuple(item.text() for item in self.items())

    def number(self, lowest: int = 0, highest: int = SEQ_MAX) -> int:
        """A whole number, both bounds included."""
        if not isinstance(self.value, int) or isinstance(self.value, bool) or not lowest <= self.value <= highest:
            raise self.fail(f"must be a whole number from {lowest} to {highest}")
        return self.value

    def truth(self) -> bool:
        """True or false."""
        if not isinstance(self.value, bool):
            raise self.fail("must be true or false")
        return self.value

    def word(self, *words: str) -> str:
        """One of these words."""
        if self.value not in words or not isinstance(self.value, str):
            raise self.fail(f"must be one of {', '.join(words)}")
        return self.value

    def seqs(self) -> SeqSet:
        """A list of seqs and of pairs [first, last]."""
        ranges: list[tuple[int, int]] = []
        for item in self.items():
            first, last = (
                item.value if isinstance(item.value, list) and len(item.value) == 2 else (item.value, item.value)
            )
            low, high = (Node(item.file, item.scenario, item.key, end).number(1) for end in (first, last))
            if high < low:
                raise item.fail("must be a seq or a pair [first, last]")
            ranges.append((low, high))
        return as_ranges(ranges)
