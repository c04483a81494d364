"""Which ports a suite may take."""

from __future__ import annotations

import pytest

from qim_devkit.ports import CHOICE, RANGE_VARIABLE, allocate, choice


def test_a_range_narrows_the_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RANGE_VARIABLE, "25000-25099")
    assert all(25_000 <= port <= 25_099 for port in allocate("abcdef", {}).values())


def test_without_a_range_the_choice_is_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RANGE_VARIABLE, raising=False)
    assert choice() == CHOICE


@pytest.mark.parametrize("text", ["25000", "a-b", "30000-20000", "0-10", "20000-70000"])
def test_a_range_that_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(RANGE_VARIABLE, text)
    with pytest.raises(ValueError, match="write FIRST-LAST"):
        choice()
