"""The suite that the model's tests share; each test uses people and groups of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

pytest.register_assert_rewrite(*(f"tests.model.{name}" for name in ("reader", "lanes", "doors", "histories")))

from tests.model.world import World  # noqa: E402 - what is imported before is not rewritten


@pytest.fixture(scope="session")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """The running suite."""
    async with World.running(tmp_path_factory.mktemp("model") / "suite") as running:
        yield running
