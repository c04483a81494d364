"""The whole suite on one machine: embedded Valkeys and the services as separate processes over mTLS.

`make up`, the demo, the benchmark and the end-to-end tests all start it here. Everything lies below one directory; a
second start on it finds the data, the identities and, unless something took them, the ports.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from qim_common.identity import Role
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
    write_token_key,
)
from qim_devkit.valkey import ValkeyServer

MODULES: Final = {"writer": "qim_writer.main", "session": "qim_session.main", "admin": "qim_admin.main"}
"""The services in the order in which they start; they stop in the opposite one."""

SESSION: Final = "session"
"""The service that may run in several replicas."""

DRAIN_SECONDS: Final = "3"
"""How long a service that stops waits for its calls, and then again for its own work."""

_WATCH_SECONDS: Final = 0.2


class Suite:
    """Valkeys `valkey-0`, `valkey-1`, ... and the services `writer`, `session` and `admin`, by these names.

    Further replicas of the session service are `session-1`, `session-2`, ...: they have ports, a certificate and a log
    of their own. Whoever is told one address only, the writer and `client.toml`, is told that of `session`.

    Args:
        directory: holds everything; created if it is not there. One supervisor at a time.
        valkeys: how many instances, from 1; a directory keeps the number it began with.
        services: which of MODULES to start.
        sessions: how many replicas of the session service, from 1, where it is among `services`.
        tenants: the tenants that the development identities may act in.
        env_overrides: environment variables of every service that replace or extend the ones made here.
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
    ) -> None:
        if valkeys < 1:
            raise ValueError("a suite has at least one Valkey")
        if sessions < 1:
            raise ValueError("a suite has at least one session replica; leave the service out to have none")
        if unknown := set(services) - set(MODULES):
            raise ValueError(f"unknown services {', '.join(sorted(unknown))}; there are {', '.join(MODULES)}")
        self.paths = SuitePaths(directory.resolve())
        self.pki = DevPki(self.paths.pki)
        self.tenants = tuple(tenants)
        self.session_names = tuple(map(_replica, range(sessions))) if SESSION in services else ()
        self.service_names = tuple(
            name
            for service in MODULES
            if service in services
            for name in (self.session_names if service == SESSION else (service,))
        )
        self.valkey_names = tuple(f"valkey-{number}" for number in range(valkeys))
        self._overrides = dict(env_overrides or {})
        self._installation_id = ""
        self._ports: dict[str, int] = {}
        self._valkeys: dict[str, ValkeyServer] = {}
        self._services: dict[str, ServiceProcess] = {}

    @property
    def addresses(self) -> dict[str, str]:
        """`host:port` of each service's mTLS port, by its name. Empty before `start`."""
        return {name: self._address(name) for name in self.service_names if name in self._ports}

    @property
    def valkey_addresses(self) -> tuple[str, ...]:
        """`host:port` of each Valkey, in the order of the topology. Empty before `start`."""
        return tuple(self._address(name) for name in self.valkey_names if name in self._ports)

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
            ValkeyStartError: a Valkey did not start. Likewise.
            ValueError: the state file is damaged, or the directory holds another number of Valkeys.
        """
        try:
            self._provision()
            for server in self._valkeys.values():
                # In this thread, which outlives the server: see qim_devkit.tether.
                server.start()
            first, *others = self._services.values()
            await first.start()
            outcomes = await asyncio.gather(*(service.start() for service in others), return_exceptions=True)
            for failure in filter(None, outcomes):
                raise failure
        except BaseException:
            await self.stop()
            raise

    def _provision(self) -> None:
        root = self.paths.root
        root.mkdir(parents=True, exist_ok=True)
        state = load_state(self.paths)
        known = {name for name in state.ports if name.startswith("valkey-")}
        if known and known != set(self.valkey_names):
            raise ValueError(
                f"{root}: its data lies on {len(known)} Valkey instances, not on {len(self.valkey_names)}; "
                f"start it with {len(known)}, or remove {root} with all its data"
            )
        kinds = ("", ".health", ".metrics")
        names = [*self.valkey_names, *(f"{service}{kind}" for service in self.service_names for kind in kinds)]
        self._installation_id = state.installation_id
        if self.session_names:
            names += PUSH_PORTS
        self._ports = allocate(names, state.ports)
        state.ports |= self._ports
        save_state(self.paths, state)
        write_bindings(self.paths, self.tenants)
        write_token_key(self.paths)
        write_client_config(self.paths, self.pki, self.addresses, self.tenants[0])
        if self.session_names:
            write_push_environment(self.paths, self.pki, self.environment(SESSION), self._ports)
        self._valkeys = {
            name: ValkeyServer(self.paths.valkey(name), port=self._ports[name], tether=True)
            for name in self.valkey_names
        }
        self._services = {
            name: ServiceProcess(
                name,
                MODULES[_service(name)],
                self.environment(name),
                self.paths.log(name),
                self._address(f"{name}.health"),
            )
            for name in self.service_names
        }

    def environment(self, name: str) -> dict[str, str]:
        """The whole environment of one service: this process's without any QIM_ variable, and what the suite sets."""
        service = _service(name)
        files = self.pki.issue(service, f"{service}-0" if name == service else name)
        first, *rest = self.valkey_addresses
        settings = {
            "QIM_LISTEN": self._address(name),
            "QIM_HEALTH_LISTEN": self._address(f"{name}.health"),
            "QIM_METRICS_LISTEN": self._address(f"{name}.metrics"),
            "QIM_TLS_CERT_FILE": str(files.cert),
            "QIM_TLS_KEY_FILE": str(files.key),
            "QIM_TLS_CA_FILE": str(self.pki.services_ca),
            "QIM_TRUST_DOMAIN": self.pki.trust_domain,
            "QIM_BINDINGS_FILE": str(self.paths.bindings),
            "QIM_TOKEN_KEY_FILE": str(self.paths.token_key),
            "QIM_REDIS_ADDR": first,
            "QIM_MESSAGE_STORE_ADDRS": ",".join(rest),
            "QIM_INSTALLATION_ID": self._installation_id,
            "QIM_LOG_FORMAT": "text",
            "QIM_DRAIN_SECONDS": DRAIN_SECONDS,
        }
        if service == "admin":
            settings["QIM_OPERATOR_CA_FILE"] = str(self.pki.operators_ca)
        addresses = self.addresses
        settings |= {f"QIM_{other.upper()}_ADDR": addresses[other] for other in MODULES if other in addresses}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("QIM_")}
        return {**inherited, "PYTHONUNBUFFERED": "1", **settings, **self._overrides}

    async def stop(self) -> None:
        """Stop admin, session, writer and the Valkeys, in this order; what does not end within a bound is killed."""
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
        """Return never; raises SuiteError as soon as a process ends that nobody asked to end."""
        while True:
            for service in self._services.values():
                if not service.running:
                    raise SuiteError(f"{service.name} ended with {service.describe_end()}")
            for name, server in self._valkeys.items():
                if not server.running:
                    raise SuiteError(f"{name} ended; its log is {server.log_path}")
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


def _replica(number: int) -> str:
    """What a replica of the session service is called."""
    return f"{SESSION}-{number}" if number else SESSION


def _service(name: str) -> str:
    """The service of which `name` is a replica."""
    return name.partition("-")[0]
