"""Write timestamps that order values by themselves, and tenants as signed numbers."""

from __future__ import annotations

import pytest

from qim_common.cassandra import cursor_timestamp, earliest_wins, signed_tenant, unsigned_tenant
from qim_common.ids import TenantId


@pytest.mark.parametrize(("tenant", "stored"), [(1, 1), (2**63 - 1, 2**63 - 1), (2**63, -(2**63)), (2**64 - 1, -1)])
def test_a_tenant_is_the_same_64_bits_signed(tenant: int, stored: int) -> None:
    assert signed_tenant(TenantId(tenant)) == stored
    assert unsigned_tenant(stored) == tenant


def test_cursors_are_ordered_by_generation_then_seq() -> None:
    cursors = [(0, 0), (0, 1), (0, 2**44 - 1), (1, 0), (1, 5), (2**18 - 1, 2**44 - 1)]
    timestamps = [cursor_timestamp(*cursor) for cursor in cursors]
    assert timestamps == sorted(set(timestamps))
    assert timestamps[-1] < 2**63


@pytest.mark.parametrize(("generation", "seq"), [(-1, 0), (0, -1), (0, 2**44), (2**18, 0)])
def test_a_cursor_that_no_timestamp_can_hold_is_refused(generation: int, seq: int) -> None:
    with pytest.raises(ValueError, match="no write timestamp"):
        cursor_timestamp(generation, seq)


def test_the_earliest_moment_wins_and_a_deletion_by_the_clock_wins_over_it() -> None:
    assert earliest_wins(1_700_000_000_000) > earliest_wins(1_700_000_000_001) > 0
    assert earliest_wins(0) < 1_500_000_000_000_000


@pytest.mark.parametrize("time_ms", [-1, 2**43])
def test_a_moment_out_of_range_is_refused(time_ms: int) -> None:
    with pytest.raises(ValueError, match="no time"):
        earliest_wins(time_ms)
