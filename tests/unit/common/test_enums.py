"""The enums that stand beside the wire's have its names and numbers."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import pytest

from qim.common.v1 import types_pb2
from qim_common.enums import LeaverHistory, MemberState, NewcomerPolicy, RejoinHistory


@pytest.mark.parametrize(
    ("enum", "wire", "prefix", "unset"),
    [
        (MemberState, types_pb2.MemberState, "MEMBER_STATE", {"UNKNOWN": 0}),
        (NewcomerPolicy, types_pb2.NewcomerHistory.Policy, "POLICY", {}),
        (RejoinHistory, types_pb2.RejoinHistory, "REJOIN_HISTORY", {}),
        (LeaverHistory, types_pb2.LeaverHistory, "LEAVER_HISTORY", {}),
    ],
)
def test_an_enum_is_the_wires(enum: type[IntEnum], wire: Any, prefix: str, unset: dict[str, int]) -> None:
    set_values = {name.removeprefix(f"{prefix}_"): number for name, number in wire.items() if number}
    assert {value.name: value.value for value in enum} == set_values | unset
