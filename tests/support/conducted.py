"""A service whose methods do what the conversation id of the request says: the harness under test, nothing else.

As a process (`python -m tests.support.conducted`) it is configured as the writer is, by its environment.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import grpc

from qim.membership.v1 import membership_pb2, membership_pb2_grpc
from qim.writer.v1 import writer_pb2, writer_pb2_grpc
from qim_common.bindings import Bindings
from qim_common.calls import check_frame_actor, current_call, require_actor, require_principal
from qim_common.config import ServerSettings, WriterSettings, load
from qim_common.errors import GroupFrozen, RemoteError, to_status
from qim_common.server.harness import ServerHarness
from qim_common.server.runtime import run_service
from qim_common.telemetry.logs import configure_logging

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"

OK = b"ok"
FROZEN = b"frozen"
BUG = b"bug"
BACKEND_GONE = b"backend gone"
BACKEND_BUG = b"backend bug"
GROUPED = b"grouped"
COMMIT = b"commit"
FOREVER = b"forever"


class Conducted(membership_pb2_grpc.GroupMembershipServicer, writer_pb2_grpc.WriterServicer):
    """AuthorizeSend, AuthorizeHistory, MembersSince, AdminChangeMembers, RecipientsForVersion and SendMessages;
    everything else is the generated base's."""

    def __init__(self, bindings: Bindings, harness: ServerHarness) -> None:
        self.bindings = bindings
        self.harness = harness
        self.seen: list[object] = []
        self.entered = asyncio.Event()
        self.go_on = asyncio.Event()
        self.committed = asyncio.Event()

    async def AuthorizeSend(  # noqa: N802
        self, request: membership_pb2.AuthorizeSendRequest, context: Context
    ) -> membership_pb2.AuthorizeSendResponse:
        self.seen.append(require_actor())
        await _CONDUCT.get(request.conversation_id, _ok)(self)
        return membership_pb2.AuthorizeSendResponse()

    async def AdminChangeMembers(  # noqa: N802
        self, request: membership_pb2.AdminMembershipChange, context: Context
    ) -> membership_pb2.MembershipVersion:
        self.seen.append(require_principal())
        return membership_pb2.MembershipVersion(version=2)

    async def MembersSince(  # noqa: N802
        self, request: writer_pb2.MembersSinceRequest, context: Context
    ) -> writer_pb2.MembersSinceResponse:
        self.seen.append(current_call().actor)
        return writer_pb2.MembersSinceResponse()

    async def RecipientsForVersion(  # noqa: N802
        self, request: membership_pb2.RecipientsForVersionRequest, context: Context
    ) -> AsyncIterator[membership_pb2.RecipientChunk]:
        yield membership_pb2.RecipientChunk(membership_version=1)
        if request.group_id == FROZEN:
            raise GroupFrozen
        if request.group_id == FOREVER:
            await asyncio.Event().wait()
        yield membership_pb2.RecipientChunk(membership_version=2)

    async def SendMessages(  # noqa: N802
        self, frames: AsyncIterator[writer_pb2.SendMessagesRequest], context: Context
    ) -> AsyncIterator[writer_pb2.SendMessagesResponse]:
        call = current_call()
        assert call.stream is not None
        over = asyncio.ensure_future(call.stream.wait())
        try:
            while not over.done():
                reading = asyncio.ensure_future(anext(aiter(frames), None))
                await asyncio.wait((reading, over), return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():
                    reading.cancel()
                    return
                frame = reading.result()
                if frame is None:
                    return
                actor = check_frame_actor(self.bindings, call.peer, frame.actors[0], "actors[0]")
                self.seen.append(actor)
                refused = to_status(GroupFrozen())
                yield writer_pb2.SendMessagesResponse(
                    frame_number=frame.frame_number, results=[writer_pb2.SendResult(index=0, status=refused)]
                )
        finally:
            over.cancel()


async def _ok(_: Conducted) -> None:
    return


async def _frozen(_: Conducted) -> None:
    raise GroupFrozen


async def _bug(_: Conducted) -> None:
    raise KeyError("the database password is hunter2")


async def _backend_gone(_: Conducted) -> None:
    raise RemoteError(code=grpc.StatusCode.UNAVAILABLE, message="10.0.0.7 refused")


async def _backend_bug(_: Conducted) -> None:
    raise RemoteError(code=grpc.StatusCode.INTERNAL, reason="INTERNAL", message="secret of another service")


async def _grouped(conducted: Conducted) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_frozen(conducted))


async def _commit(conducted: Conducted) -> None:
    async def work() -> None:
        conducted.entered.set()
        print("COMMITTING", flush=True)
        await conducted.go_on.wait()
        conducted.committed.set()
        print("COMMITTED", flush=True)

    await conducted.harness.tasks.shield(work())


async def _forever(conducted: Conducted) -> None:
    conducted.entered.set()
    await asyncio.Event().wait()


_CONDUCT: dict[bytes, Callable[[Conducted], Awaitable[None]]] = {
    FROZEN: _frozen,
    BUG: _bug,
    BACKEND_GONE: _backend_gone,
    BACKEND_BUG: _backend_bug,
    GROUPED: _grouped,
    COMMIT: _commit,
    FOREVER: _forever,
}


def build(settings: ServerSettings, **options: Any) -> tuple[ServerHarness, Conducted]:
    """A harness with the service registered, not yet started."""
    bindings = Bindings(settings.bindings_file, interval=0)
    harness = ServerHarness(settings, bindings=bindings, **options)
    make: Any = Conducted
    conducted: Conducted = make(bindings, harness)
    harness.add(
        membership_pb2_grpc.add_GroupMembershipServicer_to_server,
        conducted,
        service="qim.membership.v1.GroupMembership",
    )
    harness.add(writer_pb2_grpc.add_WriterServicer_to_server, conducted, service="qim.writer.v1.Writer")
    return harness, conducted


async def main() -> None:
    """Serves; a commit that has begun goes on when the harness drains."""
    settings = load(WriterSettings)
    configure_logging(service="conducted", level=settings.log_level, log_format=settings.log_format)
    harness, conducted = build(settings)

    async def let_commits_end() -> None:
        await harness.draining.wait()
        conducted.go_on.set()

    async def closed(name: str) -> None:
        print(f"CLOSED {name}", flush=True)

    letting = asyncio.create_task(let_commits_end())
    await harness.run([lambda: closed("first"), lambda: closed("second")])
    await letting


if __name__ == "__main__":
    run_service(main)
