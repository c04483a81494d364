"""The admin service's composition root: configuration, the writer's channel, the operator API, one server."""

from __future__ import annotations

from qim.admin.v1 import admin_pb2_grpc
from qim_admin.backends.log_journal import LogJournal
from qim_admin.backends.writer import WriterDirectory
from qim_admin.commands.groups import GroupCommands
from qim_admin.handlers.group_admin import GroupAdminHandler
from qim_common.bindings import Bindings
from qim_common.channels import ChannelProvider
from qim_common.config import AdminSettings, load
from qim_common.server.harness import ServerHarness
from qim_common.server.runtime import run_service
from qim_common.telemetry.logs import configure_logging


async def serve(settings: AdminSettings) -> None:
    """Serve until SIGTERM. Raises StartRefusedError where the process must not serve as it is configured."""
    bindings = Bindings(settings.bindings_file)
    harness = ServerHarness(settings, bindings=bindings)
    channels = ChannelProvider(settings.writer_addr, settings.client_tls)
    commands = GroupCommands(WriterDirectory(channels), bindings, LogJournal())
    # The generated base answers UNIMPLEMENTED for the methods of later versions; only its types call them abstract.
    handler = GroupAdminHandler(commands)  # type: ignore[abstract]
    harness.add(admin_pb2_grpc.add_GroupAdminServicer_to_server, handler, service="qim.admin.v1.GroupAdmin")
    await harness.run([channels.close])


def main() -> None:
    """The process `qim-admin`."""
    settings = load(AdminSettings)
    configure_logging(service=settings.service, level=settings.log_level, log_format=settings.log_format)
    run_service(lambda: serve(settings))


if __name__ == "__main__":
    main()
