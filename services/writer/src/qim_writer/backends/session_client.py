"""What the writer tells the session service, over mTLS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import grpc

from qim.session.v1 import session_pb2
from qim.session.v1.session_pb2_grpc import SessionStub
from qim_common.channels import ChannelProvider
from qim_common.errors import from_rpc_error
from qim_writer.domain.hints import HintRun

CALL_SECONDS: Final = 1.0
"""What takes longer is no hint any more: the durable lane is there first."""


class SessionLane:
    """The `ProjectionLane` to the session service behind a channel."""

    def __init__(self, channels: ChannelProvider) -> None:
        self._channels = channels

    async def project(self, runs: Sequence[HintRun]) -> None:
        """See `qim_writer.storage.ProjectionLane`."""
        request = session_pb2.ProjectRequest(
            runs=[
                session_pb2.ProjectRequest.Run(
                    tenant_id=run.tenant,
                    conversation_id=run.conversation,
                    membership_version=run.version,
                    time_ms=run.time_ms,
                    broadcast=run.broadcast,
                    concerned_user_ids=run.concerned,
                    big=run.big,
                    became_big=run.became_big,
                )
                for run in runs
            ]
        )
        try:
            await self._channels.stub(SessionStub).Project(request, timeout=CALL_SECONDS)
        except grpc.aio.AioRpcError as failure:
            raise from_rpc_error(failure) from None
