"""Single comparisons of a scenario, and how a failed one is told. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tests.conformance.runner.scenario import Scenario, Value

NOBODY = "-"
"""Where a check is about no person."""


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison.

    Attributes:
        step: the step's place in the scenario, from 0, `expect` steps counted.
        person: whom it is about, or NOBODY.
        key: what was compared: a key of `expect`, or seq, no_event, error, or answer (of a retry).
        expected, got: as they are shown.
    """

    scenario: Scenario
    step: int
    person: str
    key: str
    expected: str
    got: str

    @property
    def passed(self) -> bool:
        """Whether it holds."""
        return self.expected == self.got

    def __str__(self) -> str:
        return (
            f"FAILED {self.scenario.file}: scenario {self.scenario.name}, step {self.step}, person {self.person}, "
            f"key {self.key}: expected {self.expected}, got {self.got}"
        )


def shown(value: Value) -> str:
    """A value as it stands in a file: `[[1, 15], 80]`, `DENIED`, `3`, `true`, `[ana, ben]`, `null`."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case tuple():
            return f"[{', '.join(item if isinstance(item, str) else _range(*item) for item in value)}]"
        case _:
            return str(value)


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"[{first}, {last}]"
