"""A group's settings as protobuf; every service and the client keep them in a form of their own."""

from __future__ import annotations

from typing import Protocol

from qim.common.v1 import types_pb2


class Settings(Protocol):
    """A group's settings, enums as on the wire."""

    @property
    def newcomer(self) -> int:
        """NewcomerHistory.Policy."""
        ...

    @property
    def last_n(self) -> int:
        """Seqs before the join, with LAST_N only."""
        ...

    @property
    def rejoin(self) -> int:
        """RejoinHistory."""
        ...

    @property
    def leaver(self) -> int:
        """LeaverHistory."""
        ...

    @property
    def broadcast_max_members(self) -> int:
        """0 stands for the deployment's value."""
        ...

    @property
    def member_limit(self) -> int:
        """0 stands for the deployment's value."""
        ...

    @property
    def retention_days(self) -> int:
        """0 for never."""
        ...


def settings_to_wire(settings: Settings) -> types_pb2.GroupSettings:
    """The settings, whatever their range: the writer checks them."""
    return types_pb2.GroupSettings(
        newcomer_history=types_pb2.NewcomerHistory(
            policy=types_pb2.NewcomerHistory.Policy.ValueType(settings.newcomer), last_n=settings.last_n
        ),
        rejoin_history=types_pb2.RejoinHistory.ValueType(settings.rejoin),
        leaver_history=types_pb2.LeaverHistory.ValueType(settings.leaver),
        broadcast_max_members=settings.broadcast_max_members,
        member_limit=settings.member_limit,
        retention_days=settings.retention_days,
    )
