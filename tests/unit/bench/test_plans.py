"""What the benchmark's processes tell each other survives the way, and the projection's ratio is the worst one."""

from __future__ import annotations

from bench.plan import LoadPlan, SubscriberPlan
from bench.projection import BARE, DURABLE, LOW_LATENCY, Projection, ProjectionCost

GROUPS = [("02aa", ["0b", "0c"])]


def test_a_load_plan_survives_the_pipe() -> None:
    plan = LoadPlan("127.0.0.1:1", "c", "k", "a", 1, GROUPS, 220, 2, 2.0, trace=True)
    assert LoadPlan.from_line(plan.to_line()) == plan


def test_a_subscriber_plan_survives_the_pipe() -> None:
    plan = SubscriberPlan("127.0.0.1:1", "c", "k", "a", 1, GROUPS, 2, 5.0)
    assert SubscriberPlan.from_line(plan.to_line()) == plan


def test_the_worst_ratio_is_that_of_the_script_and_not_of_the_bare_command() -> None:
    ratios = {BARE: 9.0, LOW_LATENCY: 1.25, DURABLE: 1.5}
    costs = [ProjectionCost(way, 50, False, 5.0, 2.0, ratio) for way, ratio in ratios.items()]
    assert Projection(20_000, 250, costs).worst == 1.5
