"""The manifests as a whole: which container runs which program with which settings, and which are the stores."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from pydantic_settings import BaseSettings

from qim_devkit.kubernetes.checks.fault import Fault, place
from qim_devkit.kubernetes.checks.programs import (
    IMAGES,
    MAINTENANCE,
    PROGRAMS,
    STORE_IMAGES,
    Program,
    StoreKind,
    image_name,
    is_store,
    program_of,
)
from qim_devkit.kubernetes.checks.settings import Read, read, value_of, variables_of
from qim_devkit.kubernetes.mounts import Secrets
from qim_devkit.kubernetes.pods import WORKLOADS, Container, container_of, pod_template, workloads
from qim_devkit.kubernetes.render import Document, Manifests

COMPONENT: Final = "app.kubernetes.io/component"
PART_OF: Final = "app.kubernetes.io/part-of"
NAMESPACED: Final = frozenset(
    {
        *WORKLOADS,
        *("ConfigMap", "Secret", "Service", "ServiceAccount", "Certificate", "Issuer", "NetworkPolicy", "PodMonitor"),
        *("PodDisruptionBudget", "HorizontalPodAutoscaler", "PrometheusRule"),
    }
)
"""Kinds that go into whatever namespace is the current one, where they name none."""

CERTIFICATE_KEYS: Final = ("tls.crt", "tls.key", "ca.crt")
"""The keys of a Secret that cert-manager makes."""

GIVEN_SECRETS: Final[Secrets] = {
    "qim-token-keys": {"token.keys": b"d" * 64},
    "qim-valkey-password": {"password": b"word"},
    "qim-valkey-auth": {"auth.conf": b"requirepass word"},
    "qim-cassandra-password": {"password": b"word"},
    "qim-webhook-secret": {"secret": b"d" * 64},
}
"""Secrets that are in no manifest, as whoever installs makes them (docs/operations.md), with values of their form."""


@dataclass(frozen=True)
class Process:
    """One container that runs a program of qim."""

    workload: Document
    program: Program
    container: Container
    read: Mapping[type[BaseSettings], Read]

    @property
    def where(self) -> str:
        """As `Fault.where` has it."""
        return f"{place(self.workload)}, container {self.container.name}"

    @property
    def name(self) -> str:
        """Of the workload."""
        return str(self.workload["metadata"]["name"])

    def value(self, name: str) -> Any:
        """A setting by the name of its field; None where the program has none, or where its class is at fault."""
        return value_of(self.read, name)

    def has(self, name: str) -> bool:
        """Whether one of its settings classes has this field."""
        return any(name in cls.model_fields for cls in self.read)

    @property
    def variables(self) -> frozenset[str]:
        """Every variable that it reads."""
        return self.program.variables.union(*map(variables_of, self.read))


@dataclass(frozen=True)
class StoreSet:
    """The stores of one StatefulSet."""

    workload: Document
    container: Container
    kind: StoreKind

    @property
    def where(self) -> str:
        """As `Fault.where` has it."""
        return f"{place(self.workload)}, container {self.container.name}"


@dataclass(frozen=True)
class Suite:
    """Everything that the checks look at; `unreadable` is what could not be read for it."""

    manifests: Manifests
    processes: tuple[Process, ...]
    stores: tuple[StoreSet, ...]
    unreadable: tuple[Fault, ...] = field(default=())

    @classmethod
    def of(cls, manifests: Manifests) -> Suite:
        """Read them; never raises for what is only wrong."""
        processes: list[Process] = []
        stores: list[StoreSet] = []
        faults: list[Fault] = []
        secrets = _secrets(manifests)
        for workload in filter(_is_ours, workloads(manifests)):
            where, kind, name = place(workload), workload["kind"], workload["metadata"]["name"]
            containers = pod_template(workload).get("spec", {}).get("containers", ())
            if not containers:
                faults.append(Fault(where, "has no container", "run something, or remove it"))
            for raw in containers:
                if _is_beside(raw, workload, containers):
                    continue  # security alone is checked
                try:
                    container = container_of(manifests, kind, name, secrets=secrets, container=raw["name"])
                except (KeyError, ValueError) as error:
                    message = str(error.args[0]) if error.args else str(error)
                    faults.append(Fault(f"{where}, container {raw['name']}", message, "name what there is"))
                    continue
                found = _classified(workload, container)
                if isinstance(found, Process):
                    processes.append(found)
                elif isinstance(found, StoreSet):
                    stores.append(found)
                else:
                    faults.append(found)
        return cls(manifests, tuple(processes), tuple(stores), tuple(faults))

    @property
    def workloads(self) -> list[Document]:
        """What runs a process or a store of the suite."""
        return [*(process.workload for process in self.processes), *(store.workload for store in self.stores)]

    def serving(self, component: str) -> Process | None:
        """The process whose pods have this component; None where there is none."""
        return next((process for process in self.processes if process.program.component == component), None)

    def store(self, kind: StoreKind) -> StoreSet | None:
        """The stores of a kind; None where they are elsewhere."""
        return next((store for store in self.stores if store.kind is kind), None)

    def with_field(self, name: str) -> Iterator[Process]:
        """The processes that have a setting."""
        return (process for process in self.processes if process.has(name))


def namespace_of(document: Document) -> str:
    """Where an object lives."""
    return str(document["metadata"].get("namespace", "default"))


def unreadable(suite: Suite) -> list[Fault]:
    """Containers whose ConfigMaps, Secrets or program are not to be found, and objects that are nowhere."""
    nowhere = [
        Fault(place(document), "has no namespace", "say it in the kustomization")
        for document in (suite.manifests.documents if suite.processes else ())
        if document["kind"] in NAMESPACED and "namespace" not in document["metadata"]
    ]
    return [*suite.unreadable, *nowhere]


def _is_ours(workload: Document) -> bool:
    """Whether its pods are a part of qim, by their label or by an image: an example may have others beside."""
    template = pod_template(workload)
    component = template.get("metadata", {}).get("labels", {}).get(COMPONENT)
    if workload["metadata"].get("labels", {}).get(PART_OF) == "qim":
        return True
    images = [image_name(raw.get("image", "")) for raw in template.get("spec", {}).get("containers", ())]
    by_image = any((image in IMAGES and image != MAINTENANCE.name) or image in STORE_IMAGES for image in images)
    return by_image or component in {*(program.component for program in PROGRAMS), *StoreKind}


def _is_beside(raw: Document, workload: Document, containers: Sequence[Document]) -> bool:
    """Whether it is somebody else's container beside one of ours, without access to our secrets."""
    if _is_known(raw) or not any(_is_known(other) for other in containers):
        return False
    volumes = {volume["name"]: volume for volume in pod_template(workload)["spec"].get("volumes", ())}
    mounted = [volumes.get(mount["name"], {}) for mount in raw.get("volumeMounts", ())]
    sources = [source for volume in mounted for source in (volume, *volume.get("projected", {}).get("sources", ()))]
    return not any("secret" in source for source in sources)


def _is_known(raw: Document) -> bool:
    image = raw.get("image", "")
    return image_name(image) in {*IMAGES, *STORE_IMAGES} or is_store(image, tuple(raw.get("command", ())))


def _classified(workload: Document, container: Container) -> Process | StoreSet | Fault:
    where = f"{place(workload)}, container {container.name}"
    component = container.labels.get(COMPONENT, "")
    if is_store(container.image, container.entrypoint):
        kinds = [kind for kind in StoreKind if kind == component]
        if workload["kind"] != "StatefulSet" or not kinds:
            labels = " or ".join(StoreKind)
            return Fault(where, "is a store", f"make it a StatefulSet whose pods have {COMPONENT}={labels}")
        return StoreSet(workload, container, kinds[0])
    program = program_of(container.image, container.entrypoint, container.arguments, component)
    if program is None:
        runs = " ".join(container.command) or f"the entry point of {container.image}"
        return Fault(where, f"runs {runs}, which is no program of qim", "see the entry points of the Dockerfiles")
    if component != program.component:
        remedy = f"label its pods {COMPONENT}={program.component}"
        return Fault(where, f"runs {program.name}, and its pods are labelled as {component or 'nothing'}", remedy)
    classes = program.settings
    if container.environment.get("QIM_BACKEND") == "tiered":
        classes += program.tiered
    found = {cls: read(cls, container.environment, container.files) for cls in classes}
    return Process(workload, program, container, found)


def _secrets(manifests: Manifests) -> dict[str, Mapping[str, bytes]]:
    """What a cluster holds beside the Secrets of the manifests."""
    found = {**GIVEN_SECRETS, "qim-cassandra-ca": {"ca.crt": _pem()}}
    for secret in manifests.of("Secret"):
        found.pop(secret["metadata"]["name"], None)
    for certificate in manifests.of("Certificate"):
        name = certificate["spec"].get("secretName", "")
        found[name] = dict.fromkeys(CERTIFICATE_KEYS, _pem())
    return found


@functools.cache
def _pem() -> bytes:
    """A certificate, for settings that look into their files."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "any")])
    begin = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(begin).not_valid_after(begin + timedelta(days=1))
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
