"""`make mutants` weakens the sources as they are now: a rule that was moved or reworded has to be found again."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.mutants.rules import MUTANTS, Mutant

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_rule_stands_where_the_mutant_says(mutant: Mutant) -> None:
    source = (ROOT / mutant.file).read_text()
    assert mutant.applied(source) != source


def test_each_mutant_has_a_name_of_its_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_a_rule_that_is_not_found_is_named() -> None:
    mutant = Mutant("a rule", "invariant 1", "some/file.lua", "text", "other")
    with pytest.raises(ValueError, match=r"a rule: some/file\.lua holds its text 2 times, not once"):
        mutant.applied("text and text")
