"""The requests and limits that follow from measured loads."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench.sizing import Load, Sizing, kept_bytes, sizing_of

MIB = 1 << 20
LOAD = Load(
    members=10,
    offered=2_000,
    achieved=1_990,
    committed=20_000,
    deliveries=200_000,
    wall_seconds=20,
    cpu_seconds={"writer": 4.2, "admin": 0.0},
    highest_bytes={"writer": 100 * MIB, "admin": 77 * MIB},
    stored_bytes=16_000_000,
    errors={},
)
IDLE = {"writer": 0.01, "admin": 0.0}


def test_the_cpu_of_messages_is_without_what_an_idle_process_takes() -> None:
    assert LOAD.cpu_per_thousand("writer", 0.01) == pytest.approx(0.2)
    assert LOAD.cpu_per_thousand("admin", 0.01) == 0.0, "rounding of an idle process makes no negative figure"


def test_valkeys_bytes_are_per_message() -> None:
    assert LOAD.stored_per_message == 800
    assert kept_bytes(800, per_second=100, hours=24) == 800 * 100 * 24 * 3600


def test_a_stage_without_messages_has_figures_too() -> None:
    nothing = replace(LOAD, committed=0, stored_bytes=0)
    assert (nothing.stored_per_message, nothing.cpu_per_thousand("admin", 0.0)) == (0, 0)


def test_a_container_asks_for_its_cpu_at_the_rate_and_for_twice_its_highest_memory_and_its_bounds() -> None:
    assert sizing_of(IDLE, [LOAD], {"writer": 56 * MIB}) == [Sizing("writer", 450, 256), Sizing("admin", 50, 192)]


def test_the_nearest_rate_in_small_groups_counts_for_the_cpu_and_every_load_for_the_memory() -> None:
    slow = replace(LOAD, offered=500, cpu_seconds={"writer": 100.0, "admin": 100.0})
    large = replace(LOAD, members=500, cpu_seconds=slow.cpu_seconds, highest_bytes={"writer": 130 * MIB, "admin": 0})
    assert sizing_of(IDLE, [slow, large, LOAD], {}) == [Sizing("writer", 450, 320), Sizing("admin", 50, 192)]


def test_sizes_from_no_load_are_refused() -> None:
    with pytest.raises(ValueError, match="nothing was measured"):
        sizing_of(IDLE, [], {})
