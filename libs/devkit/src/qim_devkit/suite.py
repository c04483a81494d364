"""The whole suite on one machine: embedded Valkeys and the services as separate processes over mTLS.

`make up`, the demo, the benchmark and the end-to-end tests all start it here. Everything lies below one directory; a
second start on it finds the data, the identities and, unless something took them, the ports. With the backend `tiered`
it has archivers too, and uses a Cassandra cluster that runs already.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self

from qim_common.identity import Role
from qim_devkit.cassandra import CassandraCluster, ExistingCluster
from qim_devkit.environment import listeners_of, service_environment, service_of
from qim_devkit.paths import SuitePaths
from qim_devkit.pki import CertFiles, DevPki
from qim_devkit.ports import allocate
from qim_devkit.processes import ServiceProcess, SuiteError
from qim_devkit.provision import (
    BACKEND,
    GATEWAY,
    OPERATOR,
    PUSH_PORTS,
    load_state,
    save_state,
    write_bindings,
    write_client_config,
    write_push_environment,
    write_qimctl_environment,
    write_token_key,
)
from qim_devkit.stores import start_again, tell_of
from qim_devkit.tiered import ARCHIVER, ARCHIVER_MODULE, Backend, CassandraPlace, keyspace_of
from qim_devkit.valkey import ValkeyServer

MODULES: Final = {"writer": "qim_writer.main", "session": "qim_session.main", "admin": "qim_admin.main"}
"""The services in the order in which they start; they stop in the opposite one."""

SESSION: Final = "session"
"""The service that may run in several replicas."""

_WATCH_SECONDS: Final = 0.2


class Suite:
    """Valkeys `valkey-0`, `valkey-1`, ... and the services `writer`, `session` and `admin`, by these names.

    Further replicas of the session service are `session-1`, `session-2`, ...: they have ports, a certificate and a log
    of their own. Whoever is told one address only, the writer and `client.toml`, is told that of `session`. With the
    backend `tiered` there are `archiver`, `archiver-1`, ... too, which serve their health and metrics only.

    Args:
        directory: holds everything; created if it is not there. One supervisor at a time.
        valkeys: how many instances, from 1; a directory keeps the number it began with.
        services: which of MODULES to start.
        sessions: how many replicas of the session service, from 1, where it is among `services`.
        tenants: the tenants that the development identities may act in.
        env_overrides: environment variables of every service that replace or extend the ones made here.
        backend: a Backend; a directory keeps the one it began with.
        cassandra: with `tiered`, and only then: the cluster, here or elsewhere. It runs already, and goes on.
        keyspace: its tables are made where they are missing. By default one of the directory's own.
        archivers: how many archivers with `tiered`, from 0.
        ack_level: what an acknowledgement survives (storage.md, "Backends").
    """

    def __init__(
        self,
        directory: Path,
        *,
        valkeys: int = 2,
        services: Sequence[str] = tuple(MODULES),
        sessions: int = 1,
        tenants: Sequence[int] = (1,),
        env_overrides: Mapping[str, str] | None = None,
        backend: str = Backend.REDIS,
        cassandra: CassandraCluster | ExistingCluster | None = None,
        keyspace: str = "",
        archivers: int = 1,
        ack_level: Literal["log", "replicated", "archived"] = "log",
    ) -> None:
        if valkeys < 1:
            raise ValueError("a suite has at least one Valkey")
        if sessions < 1:
            raise ValueError("a suite has at least one session replica; leave the service out to have none")
        if unknown := set(services) - set(MODULES):
            raise ValueError(f"unknown services {', '.join(sorted(unknown))}; there are {', '.join(MODULES)}")
        if backend not in list(Backend):
            raise ValueError(f"unknown backend {backend}; there are {', '.join(Backend)}")
        if (cassandra is not None) != (backend == Backend.TIERED):
            raise ValueError("Cassandra is named for the backend tiered, and only for it")
        if archivers < 0:
            raise ValueError("a suite has 0 archivers or more")
        self.paths = SuitePaths(directory.resolve())
        self.pki = DevPki(self.paths.pki)
        self.tenants = tuple(tenants)
        self.backend = backend
        self.session_names = _replicas(SESSION, sessions) if SESSION in services else ()
        self.archiver_names = _replicas(ARCHIVER, archivers) if backend == Backend.TIERED else ()
        self.service_names = tuple(
            name
            for service in [name for name in MODULES if name in services]
            for name in (self.session_names if service == SESSION else (service,))
        )
        self.service_names += self.archiver_names
        self.valkey_names = tuple(f"valkey-{number}" for number in range(valkeys))
        self._overrides = dict(env_overrides or {})
        self._cassandra = cassandra
        self._keyspace = keyspace
        self.ack_level = ack_level
        self._installation_id = ""
        self._ports: dict[str, int] = {}
        self._valkeys: dict[str, ValkeyServer] = {}
        self._services: dict[str, ServiceProcess] = {}

    @property
    def addresses(self) -> dict[str, str]:
        """`host:port` of each mTLS port, by its service's name. Empty before `start`."""
        return {name: self._address(name) for name in self.service_names if name in self._ports}

    @property
    def valkey_addresses(self) -> tuple[str, ...]:
        """`host:port` of each Valkey, in the order of the topology. Empty before `start`."""
        return tuple(self._address(name) for name in self.valkey_names if name in self._ports)

    @property
    def cassandra_place(self) -> CassandraPlace | None:
        """Where the suite's tables are, after `start`; None without Cassandra."""
        if self._cassandra is None:
            return None
        return CassandraPlace.of(self._cassandra, self._keyspace or keyspace_of(self._installation_id))

    def gateway_files(self) -> CertFiles:
        """The development gateway's certificate."""
        return self.pki.issue(Role.GATEWAY, GATEWAY)

    def operator_files(self) -> CertFiles:
        """The development operator's certificate; the operator role is `admin`."""
        return self.pki.issue(Role.OPERATOR, OPERATOR)

    def backend_files(self) -> CertFiles:
        """The development back end's certificate."""
        return self.pki.issue(Role.BACKEND, BACKEND)

    def metrics_address(self, service: str) -> str:
        """`host:port` of a service's Prometheus endpoint."""
        return self._address(f"{service}.metrics")

    def pid(self, name: str) -> int:
        """The process id of a service or a Valkey. Raises RuntimeError while it does not run, KeyError if unknown."""
        return self._services[name].pid if name in self._services else self._valkeys[name].pid

    def running(self, name: str) -> bool:
        """Whether this service or Valkey lives. Raises KeyError if unknown."""
        return self._services[name].running if name in self._services else self._valkeys[name].running

    def log(self, name: str) -> Path:
        """The log file of a service or a Valkey."""
        return self._valkeys[name].log_path if name in self._valkeys else self.paths.log(name)

    async def start(self) -> None:
        """Start everything and return when every service answers SERVING.

        Raises:
            SuiteError: a service did not start; the message has the end of its log. Everything is stopped again.
                Likewise where Cassandra does not answer.
            ValkeyStartError: a Valkey did not start. Likewise.
            ValueError: the state file is damaged, or the directory holds another number of Valkeys or another backend.
        """
        try:
            self._provision()
            for server in self._valkeys.values():
                # In this thread, which outlives the server: see qim_devkit.tether.
                server.start()
            if (place := self.cassandra_place) is not None:
                await place.provide_tables()
            await self._start_services()
        except BaseException:
            await self.stop()
            raise

    async def _start_services(self) -> None:
        if self._services:
            first, *others = self._services.values()
            await first.start()
            outcomes = await asyncio.gather(*(service.start() for service in others), return_exceptions=True)
            for failure in filter(None, outcomes):
                raise failure

    def _provision(self) -> None:
        root = self.paths.root
        root.mkdir(parents=True, exist_ok=True)
        state = load_state(self.paths)
        state.require(root, self.backend, self.valkey_names)
        names = [*self.valkey_names, *(port for service in self.service_names for port in listeners_of(service))]
        self._installation_id = state.installation_id
        if self.session_names:
            names += PUSH_PORTS
        self._ports = allocate(names, state.ports)
        state.ports |= self._ports
        save_state(self.paths, state)
        write_bindings(self.paths, self.tenants)
        write_token_key(self.paths)
        if self.service_names:
            write_client_config(self.paths, self.pki, self.addresses, self.tenants[0])
        write_qimctl_environment(self.paths, self._stores())
        if self.session_names:
            write_push_environment(self.paths, self.pki, self.environment(SESSION), self._ports)
        self._valkeys = {
            name: ValkeyServer(self.paths.valkey(name), port=self._ports[name], tether=True)
            for name in self.valkey_names
        }
        self._services = {
            name: ServiceProcess(
                name,
                ARCHIVER_MODULE if name in self.archiver_names else MODULES[service_of(name)],
                self.environment(name),
                self.paths.log(name),
                self._address(f"{name}.health"),
            )
            for name in self.service_names
        }

    def environment(self, name: str) -> dict[str, str]:
        """The whole environment of one service: this process's without any QIM_ variable, and what the suite sets."""
        return {
            **service_environment(
                name,
                pki=self.pki,
                paths=self.paths,
                listen={port: self._address(port) for port in listeners_of(name)},
                services={other: self._address(other) for other in MODULES if other in self.service_names},
            ),
            **self._stores(),
        }

    def _stores(self) -> dict[str, str]:
        """What everybody's environment says of the stores."""
        first, *rest = self.valkey_addresses
        return {
            "QIM_REDIS_ADDR": first,
            "QIM_MESSAGE_STORE_ADDRS": ",".join(rest),
            "QIM_INSTALLATION_ID": self._installation_id,
            "QIM_BACKEND": self.backend,
            "QIM_ACK_LEVEL": self.ack_level,
            **(self.cassandra_place.environment if self.cassandra_place else {}),
            **self._overrides,
        }

    async def stop(self) -> None:
        """Stop archivers, admin, session, writer and the Valkeys, in this order; what does not end soon is killed."""
        for service in reversed(self._services.values()):
            if not await service.stop():
                print(f"qim: {service.name} did not end cleanly: {service.describe_end()}", file=sys.stderr)
        for server in self._valkeys.values():
            await asyncio.to_thread(server.stop)

    async def kill(self, name: str) -> None:
        """End one service or Valkey at once (SIGKILL), as a crash would. Raises KeyError if unknown."""
        if name in self._services:
            await self._services[name].kill()
        else:
            self._valkeys[name].kill()

    def pause(self, name: str) -> None:
        """Make one service stand still (SIGSTOP) until `resume`, or until it is stopped. Raises KeyError if unknown."""
        self._services[name].pause()

    def resume(self, name: str) -> None:
        """Let a paused service go on as if nothing had been. Raises KeyError if unknown."""
        self._services[name].resume()

    async def restart(self, name: str) -> None:
        """Stop one service or Valkey if it runs, start it on the same port, and wait until it serves.

        Raises SuiteError or ValkeyStartError if it does not start, KeyError if it is unknown.
        """
        if name in self._services:
            await self._services[name].stop()
            await self._services[name].start()
        else:
            self._valkeys[name].restart()

    async def watch(self) -> None:
        """Return never; raises SuiteError as soon as a process ends that nobody asked to end.

        With `tiered` a Valkey is started again instead, which may raise ValkeyStartError, and standard error has what
        became of it; so does it of an instance that is fenced from the beginning.
        """
        if self.backend == Backend.TIERED and self._services:
            for number, server in enumerate(self._valkeys.values()):
                await tell_of(number, server)
        while True:
            for service in self._services.values():
                if not service.running:
                    raise SuiteError(f"{service.name} ended with {service.describe_end()}")
            for number, (name, server) in enumerate(self._valkeys.items()):
                if not server.running:
                    if self.backend != Backend.TIERED:
                        raise SuiteError(f"{name} ended; its log is {server.log_path}")
                    await start_again(number, server)
                    if self._services:
                        await tell_of(number, server)
            await asyncio.sleep(_WATCH_SECONDS)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    def _address(self, name: str) -> str:
        return f"127.0.0.1:{self._ports[name]}"


def _replicas(service: str, count: int) -> tuple[str, ...]:
    """What the replicas of a service are called."""
    return tuple(f"{service}-{number}" if number else service for number in range(count))
