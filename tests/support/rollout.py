"""Deployments of the production overlay as processes on this machine, replaced as a Deployment's controller does it.

Each pod has a loopback address of its own. The headless Services are names of a hosts file that every sandbox has: an
address stands there from when its pod is ready until its pod is told to end.

async with Rollout(directory, manifests, valkeys) as rollout:
    await rollout.scale("qim-writer", replicas(manifests, "qim-writer"))
    await rollout.roll("qim-writer")
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import secrets
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Final, Self

import yaml
from tests.support import hiking_group
from tests.support.contained import Contained
from tests.support.sandbox import MountedVolume, Sandbox

from qim_devkit.kubernetes.pods import Container, container_of, replicas, strategy
from qim_devkit.kubernetes.render import Manifests
from qim_devkit.pki import DevPki
from qim_devkit.valkey import ValkeyServer

MIN_READY_SECONDS: Final = 1.0
"""At most, whatever the manifests say: there it is for the caches of name servers, and nothing caches a hosts file but
the clients, for a second."""

_EVERYWHERE: Final = "0.0.0.0:"
_HOSTS_BYTES: Final = 4096
_NOT_OF_REDIS: Final = ("QIM_CASSANDRA_", "QIM_SESSION_REDIS_ADDRS", "QIM_OUTBOX_")
"""Variables of the tiered backend."""


@dataclass(frozen=True, eq=False)
class Pod:
    """A pod that runs or has run."""

    deployment: str
    address: str
    container: Container
    process: Contained


class Rollout:
    """The pods of some Deployments, on the backend `redis`; as a context manager, killed at the end.

    Args:
        directory: made here.
        manifests: the production overlay.
        valkeys: the commit instances, which take `password`.
        password: of the instances.
    """

    def __init__(
        self, directory: Path, manifests: Manifests, valkeys: Sequence[ValkeyServer], *, password: str
    ) -> None:
        directory.mkdir()
        self.manifests = manifests
        self.pki = DevPki(directory / "pki")
        self.hosts = directory / "hosts"
        self.pods: dict[str, list[Pod]] = {}
        self.ended: list[Pod] = []
        self._directory = directory
        self._ready: list[Pod] = []
        self._numbers = itertools.count(1)
        self._network = f"127.{random.randrange(64, 255)}.{random.randrange(256)}"  # noqa: S311  no secret
        self._addresses = [server.address for server in valkeys]
        self._secrets = {
            "qim-token-keys": {"token.keys": secrets.token_hex(32).encode() + b"\n"},
            "qim-valkey-password": {"password": password.encode()},
            "qim-cassandra-password": {"password": b"nobody reads it"},
        }
        for certificate in manifests.of("Certificate"):
            self._secrets[certificate["spec"]["secretName"]] = self._issue(certificate["spec"])
        self._volumes: dict[tuple[str, str], MountedVolume] = {}
        self._write_hosts()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        running = [pod.process.kill() for pods in self.pods.values() for pod in pods]
        await asyncio.gather(*running, *(pod.process.kill() for pod in self.ended))

    async def scale(self, deployment: str, count: int) -> None:
        """As many pods as `count`, the oldest ones go. Raises ContainedError if one does not start or end in time."""
        there = self.pods.setdefault(deployment, [])
        await asyncio.gather(*(self._begin(deployment) for _ in range(count - len(there))))
        await asyncio.gather(*(self._end(pod) for pod in there[: max(len(there) - count, 0)]))

    async def roll(self, deployment: str) -> None:
        """Replace every pod, within what the Deployment's strategy allows. Raises ContainedError as `scale`."""
        allowed = strategy(self.manifests, deployment)
        assert (allowed.max_unavailable, allowed.max_surge) == (0, 1), "what is played here"
        wait = self.manifests.get("Deployment", deployment)["spec"].get("minReadySeconds", 0)
        old = list(self.pods[deployment])
        # Pods that end count no more: the next one is started while they drain.
        async with asyncio.TaskGroup() as ends:
            for pod in old:
                await self._begin(deployment)
                await asyncio.sleep(min(wait, MIN_READY_SECONDS))
                ends.create_task(self._end(pod))
        assert len(self.pods[deployment]) == replicas(self.manifests, deployment)

    async def crash(self, pod: Pod) -> None:
        """It is gone without a word, and its address stays."""
        await pod.process.kill()

    def sandbox(self) -> Sandbox:
        """What somebody finds who is no pod and has the cluster's names."""
        return Sandbox(hosts=self.hosts)

    def log_tails(self) -> str:
        """The end of what each pod has logged."""
        every = [*self.ended, *(pod for pods in self.pods.values() for pod in pods)]
        return "".join(f"\n{pod.process.name}: {pod.process.log_tail()}" for pod in every)

    async def _begin(self, deployment: str) -> Pod:
        number = next(self._numbers)
        name = f"{deployment}-{number}"
        address = f"{self._network}.{number}"
        container = container_of(self.manifests, "Deployment", deployment, secrets=self._secrets)
        program = container.command or (str(Path(sys.executable).parent / deployment),)
        sandbox = Sandbox(mounts=self._mounts(deployment, container), hosts=self.hosts)
        environment = self._environment(address, container)
        process = Contained(name, sandbox, program, environment, self._directory / f"{name}.log")
        pod = Pod(deployment, address, container, process)
        self.pods[deployment].append(pod)
        await process.start()
        assert container.startup is not None
        assert container.readiness is not None
        await process.until_probe(container.startup, address, container.ports)
        await process.until_probe(container.readiness, address, container.ports)
        self._ready.append(pod)
        self._write_hosts()
        return pod

    async def _end(self, pod: Pod) -> None:
        self.pods[pod.deployment].remove(pod)
        self.ended.append(pod)
        pod.process.signal(signal.SIGTERM)
        self._ready.remove(pod)
        self._write_hosts()
        status = await pod.process.stop(pod.container.grace_seconds)
        assert status == 0, f"{pod.process.name} ended with {status}; {pod.process.log_tail()}"

    def _write_hosts(self) -> None:
        lines = ["127.0.0.1 localhost", *(f"{pod.address} {pod.deployment}" for pod in self._ready)]
        content = ("\n".join(lines) + "\n").encode()
        assert len(content) < _HOSTS_BYTES
        # One write of one size in place: it is mounted, and nobody may find it empty or cut.
        file = os.open(self.hosts, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.pwrite(file, content.ljust(_HOSTS_BYTES, b"\n"), 0)
        finally:
            os.close(file)

    def _environment(self, address: str, container: Container) -> dict[str, str]:
        told = {
            name: f"{address}:{value.removeprefix(_EVERYWHERE)}" if value.startswith(_EVERYWHERE) else value
            for name, value in container.environment.items()
            if not name.startswith(_NOT_OF_REDIS)
        }
        stores = {
            "QIM_BACKEND": "redis",
            "QIM_REDIS_ADDR": self._addresses[0],
            "QIM_MESSAGE_STORE_ADDRS": ",".join(self._addresses[1:]),
        }
        return told | {name: value for name, value in stores.items() if name in told}

    def _mounts(self, deployment: str, container: Container) -> Mapping[str, Path]:
        mounts = {}
        for directory in {PurePosixPath(path).parent for path in container.files}:
            if (deployment, str(directory)) not in self._volumes:
                files = {
                    PurePosixPath(path).name: content
                    for path, content in container.files.items()
                    if PurePosixPath(path).parent == directory
                }
                if "bindings.yaml" in files:
                    files["bindings.yaml"] = yaml.safe_dump(hiking_group.BINDINGS).encode()
                at = self._directory / "volumes" / deployment / directory.name
                self._volumes[deployment, str(directory)] = MountedVolume(at, files)
            mounts[str(directory)] = self._volumes[deployment, str(directory)].directory
        return mounts

    def _issue(self, spec: Mapping[str, object]) -> dict[str, bytes]:
        """The Secret that cert-manager makes of a Certificate."""
        if spec.get("isCA"):
            name = str(spec["secretName"])
            authority = (self.pki.operators_ca if "operators" in name else self.pki.services_ca).read_bytes()
            return {"tls.crt": authority, "tls.key": b"", "ca.crt": authority}
        uris, names = spec["uris"], spec.get("dnsNames", [])
        assert isinstance(uris, list)
        assert isinstance(names, list)
        role, identity = uris[0].removeprefix(f"spiffe://{self.pki.trust_domain}/qim/").split("/")
        files = self.pki.issue(role, identity, dns=names, ips=())
        return {
            "tls.crt": files.cert.read_bytes(),
            "tls.key": files.key.read_bytes(),
            "ca.crt": self.pki.services_ca.read_bytes(),
        }
