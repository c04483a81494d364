"""The production overlay, with the push component, played on one machine: its pods are processes in sandboxes.

Each pod has a loopback address of its own, which the names of the Services lead to; it listens there where the
manifests say 0.0.0.0, all addresses of the pod. Secrets are made as docs/operations.md tells, certificates as
cert-manager would from the Certificates of the manifests.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

import redis
import yaml
from tests.support.contained import Contained
from tests.support.images import ROOT, Images
from tests.support.sandbox import MountedVolume, Sandbox, hosts_file

from qim_devkit.kubernetes.pods import Container, container_of, replicas
from qim_devkit.kubernetes.render import Manifests, render
from qim_devkit.kubernetes.tools import find_kubectl
from qim_devkit.pki import DevPki
from qim_devkit.valkey import find_server

NAMESPACE: Final = "qim"
DEPLOYMENTS: Final = ("qim-writer", "qim-session", "qim-admin", "qim-archiver", "qim-push-webhook")
STORES: Final = ("qim-valkey", "qim-session-valkey")

_EVERYWHERE: Final = "0.0.0.0:"
_STORE_PORT: Final = 6379
_POLL_SECONDS: Final = 0.02
_STORE_SECONDS: Final = 20.0


def render_production(directory: Path) -> Manifests:
    """The overlay with the push component; `directory` is made. Raises RenderError."""
    directory.mkdir()
    k8s = os.path.relpath(ROOT / "deploy/k8s", directory)
    overlay = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{k8s}/overlays/production"],
        "components": [f"{k8s}/components/push"],
    }
    (directory / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    return render(directory, kubectl=find_kubectl())


class Installation:
    """Makes the pods of the overlay; whoever starts them ends them.

    Args:
        directory: made here.
        images: of the pods.
        bindings: what stands in the bindings file; that of the overlay binds nobody.
        overrides: variables that have another value than the overlay's: Cassandra is that of the tests.
        names: further names and their addresses.
    """

    def __init__(
        self,
        directory: Path,
        images: Images,
        *,
        bindings: Mapping[str, Any],
        overrides: Mapping[str, str],
        names: Mapping[str, list[str]],
    ) -> None:
        directory.mkdir()
        self.manifests = render_production(directory / "overlay")
        self.pki = DevPki(directory / "pki")
        self.password = secrets.token_urlsafe(24)
        self.volumes: dict[tuple[str, str], MountedVolume] = {}
        self._directory = directory
        self._images = images
        self._bindings = yaml.safe_dump(dict(bindings)).encode()
        self._overrides = dict(overrides)
        network = f"127.{random.randrange(64, 255)}.{random.randrange(256)}"  # noqa: S311  no secret
        pods = [*DEPLOYMENTS, *(f"{name}-{number}" for name in STORES for number in range(self.size(name)))]
        self.addresses = {pod: f"{network}.{number}" for number, pod in enumerate(pods, 1)}
        self._secrets = self._make_secrets()
        self.hosts = hosts_file(directory / "hosts", self._service_names() | dict(names))

    def size(self, store: str) -> int:
        """How many pods this StatefulSet has."""
        return replicas(self.manifests, store)

    def container(self, kind: str, name: str) -> Container:
        """As the manifests have it; raises KeyError."""
        return container_of(self.manifests, kind, name, secrets=self._secrets)

    def service(self, name: str) -> Contained:
        """The pod of a Deployment, not started yet."""
        return self._pod("Deployment", name)

    def schema(self) -> Contained:
        """The Job that makes the tables, not started yet."""
        return self._pod("Job", "qim-schema")

    def _pod(self, kind: str, name: str) -> Contained:
        container = self.container(kind, name)
        image = self._images.by_name[container.image.partition(":")[0]]
        command = [*(container.entrypoint or image.entrypoint), *container.arguments]
        environment = {**image.environment, **self._environment(name, container)}
        return Contained(name, self.sandbox(kind, name), command, environment, self._directory / f"{name}.log")

    def sandbox(self, kind: str, name: str) -> Sandbox:
        """What the pod of a Deployment or Job finds."""
        container = self.container(kind, name)
        assert container.read_only_root
        assert not container.directories
        image = self._images.by_name[container.image.partition(":")[0]]
        return Sandbox(
            roots=(image.root, self._images.base.root),
            mounts=self._mounts(name, container),
            hosts=self.hosts,
            user=container.run_as_user,
        )

    def store(self, name: str, number: int) -> Contained:
        """The pod of a StatefulSet, not started yet; its data stays."""
        container = self.container("StatefulSet", name)
        pod = f"{name}-{number}"
        assert container.directories.keys() == {"/data"}
        data = self._directory / f"{pod}-data"
        data.mkdir(exist_ok=True)
        if os.geteuid() == 0 and container.run_as_user is not None:
            os.chown(data, container.run_as_user, container.fs_group or 0)
        sandbox = Sandbox(
            mounts={**self._mounts(pod, container), "/valkey/valkey-server": find_server()},
            writable={"/data": data},
            user=container.run_as_user,
        )
        command = [*container.command, "--bind", self.addresses[pod]]
        environment = {"PATH": "/valkey", **container.environment}
        return Contained(pod, sandbox, command, environment, self._directory / f"{pod}.log")

    async def until_store_answers(self, pod: Contained) -> None:
        """Wait, with a bound, until this store takes its password and answers."""
        async with asyncio.timeout(_STORE_SECONDS):
            while not await asyncio.to_thread(self._answers, pod.name):
                assert pod.running, pod.log_tail()
                await asyncio.sleep(_POLL_SECONDS)

    def _answers(self, pod: str) -> bool:
        with redis.Redis(host=self.addresses[pod], port=_STORE_PORT, password=self.password, protocol=2) as client:
            try:
                return bool(client.ping())
            except redis.ConnectionError:
                return False

    def _environment(self, pod: str, container: Container) -> dict[str, str]:
        own = f"{self.addresses[pod]}:" if pod in self.addresses else ""
        told = {
            name: own + value.removeprefix(_EVERYWHERE) if value.startswith(_EVERYWHERE) else value
            for name, value in container.environment.items()
        }
        return told | {name: value for name, value in self._overrides.items() if name in told}

    def _mounts(self, pod: str, container: Container) -> dict[str, Path]:
        files = dict(container.files)
        if "/etc/qim/bindings/bindings.yaml" in files:
            files["/etc/qim/bindings/bindings.yaml"] = self._bindings
        mounts = {}
        for directory in _outermost(PurePosixPath(path).parent for path in files):
            if (pod, str(directory)) not in self.volumes:
                inside = {path: PurePosixPath(path) for path in files if PurePosixPath(path).is_relative_to(directory)}
                (mode,) = {container.file_modes[path] for path in inside}
                self.volumes[pod, str(directory)] = MountedVolume(
                    self._directory / "volumes" / pod / directory.name,
                    {str(path.relative_to(directory)): files[name] for name, path in inside.items()},
                    mode=mode,
                    group=container.fs_group,
                )
            mounts[str(directory)] = self.volumes[pod, str(directory)].directory
        return mounts

    def _make_secrets(self) -> dict[str, dict[str, bytes]]:
        made = {
            "qim-token-keys": {"token.keys": secrets.token_hex(32).encode() + b"\n"},
            "qim-valkey-password": {"password": self.password.encode()},
            "qim-valkey-auth": {"auth.conf": f"requirepass {self.password}\n".encode()},
            "qim-cassandra-password": {"password": b"cassandra"},
            "qim-webhook-secret": {"secret": secrets.token_hex(32).encode() + b"\n"},
        }
        for certificate in self.manifests.of("Certificate"):
            made[certificate["spec"]["secretName"]] = self.issue(certificate["metadata"]["name"])
        return made

    def issue(self, name: str) -> dict[str, bytes]:
        """The Secret that cert-manager makes of a Certificate of the manifests."""
        spec = self.manifests.get("Certificate", name)["spec"]
        if spec.get("isCA"):
            ca = self.pki.operators_ca if "operators" in name else self.pki.services_ca
            return {"tls.crt": ca.read_bytes(), "tls.key": b"", "ca.crt": ca.read_bytes()}
        (uri,) = spec["uris"]
        role, identity = uri.removeprefix(f"spiffe://{self.pki.trust_domain}/qim/").split("/")
        files = self.pki.issue(role, identity, dns=spec.get("dnsNames", ()), ips=())
        return {
            "tls.crt": files.cert.read_bytes(),
            "tls.key": files.key.read_bytes(),
            "ca.crt": self.pki.services_ca.read_bytes(),
        }

    def _service_names(self) -> dict[str, list[str]]:
        """What the cluster's name servers would say of the Services of the manifests."""
        names: dict[str, list[str]] = {}
        for service in self.manifests.of("Service"):
            name = service["metadata"]["name"]
            pods = {pod: at for pod, at in self.addresses.items() if self._selects(service["spec"]["selector"], pod)}
            spellings = [name, f"{name}.{NAMESPACE}", f"{name}.{NAMESPACE}.svc.cluster.local"]
            names |= {spelling: list(pods.values()) for spelling in spellings}
            if name in STORES:
                names |= {f"{pod}.{spelling}": [at] for spelling in spellings for pod, at in pods.items()}
        return names

    def _selects(self, selector: Mapping[str, str], pod: str) -> bool:
        kind, name = ("Deployment", pod) if pod in DEPLOYMENTS else ("StatefulSet", pod.rpartition("-")[0])
        return selector.items() <= self.container(kind, name).labels.items()


def _outermost(directories: Iterable[PurePosixPath]) -> list[PurePosixPath]:
    """Those that are below no other."""
    found = set(directories)
    return sorted(one for one in found if not any(other in found for other in one.parents))
