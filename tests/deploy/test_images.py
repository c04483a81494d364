"""The images, made by performing their Dockerfiles, and the pods of the production overlay on them.

No container can run here. What runs instead is the same but for the kernel's view of it: the installed files, as the
user of the image, with a root that cannot be written, without capabilities, as process 1, with the environment, the
mounted files and the probes of the manifests.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import ssl
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from packaging.utils import canonicalize_name
from tests.support import hiking_group
from tests.support.cassandra import opened, settings_of, shared_with
from tests.support.contained import Contained
from tests.support.images import DOCKERFILES, LOCKS, ROOT, USER, Images
from tests.support.installation import DEPLOYMENTS, Installation
from tests.support.sandbox import Sandbox
from tests.support.valkey import missing, require_valkey

from qim_common.identity import Role
from qim_devkit.cassandra import CassandraCluster
from qim_devkit.image_locks import IMAGE_LOCKS, members_of, read_lock, read_projects
from qim_devkit.kubernetes.tools import KubernetesToolMissing, find_kubectl

SERVICES: Final = ("qim-writer", "qim-session", "qim-admin", "qim-archiver", "qim-push-webhook")
WITHOUT_SETTINGS: Final = {"qim-writer": 2, "qim-session": 2, "qim-push": 2, "qim-admin": 2, "qimctl": 2}
"""Exit status of each image without any environment."""

TOOLS: Final = ("pip", "gcc", "cc", "ld", "as", "make", "sh", "bash", "busybox", "hatchling", "pytest", "uv", "mypy")

LOOK: Final = """
import importlib.metadata, json, os, shutil, sys, sysconfig
written = [os.path.join(at, name) for at, below, names in os.walk("/") for name in [".", *names]
           if not at.startswith(("/proc", "/dev")) and os.access(os.path.join(at, name), os.W_OK)]
installed = importlib.metadata.distributions(path=[sysconfig.get_path("purelib")])
packages = {one.metadata["Name"]: one.version for one in installed}
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines())
print(json.dumps({
    "written": written,
    "packages": packages,
    "tools": [name for name in sys.argv[1:] if shutil.which(name, path="/opt/qim/bin")],
    "ids": [status["Uid"].split(), status["Gid"].split(), status["Groups"].split()],
    "capabilities": [int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")],
    "no_new_privileges": status["NoNewPrivs"],
    "uncompiled": [path for at, _, names in os.walk(sysconfig.get_path("purelib")) for path in names
                   if path.endswith(".py") and "/qim_" in at
                   and not os.path.exists(os.path.join(at, "__pycache__", path[:-3] + ".cpython-311.pyc"))],
}))
"""

RENEWAL_SECONDS: Final = 20.0
PLAY_SECONDS: Final = 90.0
SCHEMA_SECONDS: Final = 240.0

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(400)]


def _look(sandbox: Sandbox, environment: Mapping[str, str]) -> dict[str, Any]:
    """What a process finds in a container: see LOOK."""
    done = sandbox.run(["python", "-c", LOOK, *TOOLS], environment)
    assert done.returncode == 0, done.stdout
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", DOCKERFILES)
def test_an_image_has_its_lock_file_and_its_members_and_nothing_else(images: Images, name: str) -> None:
    image = images.by_name[name]
    found = _look(images.sandbox(name), image.environment)
    projects = read_projects(ROOT)
    lock = read_lock((ROOT / LOCKS[name]).read_text())
    holding = [one for one in lock if one.requirement.marker is None or one.requirement.marker.evaluate()]
    expected = {one.name: str(one.requirement.specifier).removeprefix("==") for one in holding}
    expected |= {member: projects[member]["version"] for member in members_of(IMAGE_LOCKS[LOCKS[name]], projects)}
    assert {canonicalize_name(package): version for package, version in found["packages"].items()} == expected
    assert found["tools"] == []
    assert found["uncompiled"] == []


@pytest.mark.parametrize("name", DOCKERFILES)
def test_a_process_of_an_image_is_nobody_and_can_write_nothing(images: Images, name: str) -> None:
    found = _look(images.sandbox(name), images.by_name[name].environment)
    assert found["written"] == []
    user, group, groups = found["ids"]
    assert user == group == [str(USER)] * 4
    assert groups in ([], [str(USER)])
    assert found["capabilities"] == [0, 0, 0, 0]
    assert found["no_new_privileges"] == "1"


@pytest.mark.parametrize("name", DOCKERFILES)
def test_an_image_without_settings_says_what_it_needs(images: Images, name: str) -> None:
    image = images.by_name[name]
    assert image.user == f"{USER}:{USER}"
    done = images.sandbox(name).run(image.entrypoint, image.environment)
    assert done.returncode == WITHOUT_SETTINGS[name], done.stdout
    assert "Traceback" not in done.stdout
    assert ("QIM_TLS_CERT_FILE: is not set" in done.stdout) == (name != "qimctl")


def test_the_images_are_labelled_alike(images: Images) -> None:
    for name, image in images.by_name.items():
        labels = {label.removeprefix("org.opencontainers.image."): value for label, value in image.labels.items()}
        assert labels["title"] == name
        assert labels["version"] == read_projects(ROOT)[canonicalize_name("qim-common")]["version"]
        assert labels.keys() == {"title", "version", "description"}


@pytest.fixture(scope="module")
def alone_in_keyspace(cassandra_run: tuple[CassandraCluster, Path]) -> Iterator[tuple[CassandraCluster, str]]:
    """The tests' cluster, and the name of a keyspace that is not there and is removed at the end."""
    keyspace = f"qim_images_{secrets.token_hex(4)}"
    with shared_with(cassandra_run) as cluster:
        yield cluster, keyspace

        async def drop() -> None:
            async with opened(settings_of(cluster), keyspace="") as session:
                await session.define(f"DROP KEYSPACE IF EXISTS {keyspace}")

        asyncio.run(drop())


@pytest_asyncio.fixture(scope="module")
async def installation(
    images: Images, alone_in_keyspace: tuple[CassandraCluster, str], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Installation, dict[str, Contained]]]:
    """The production overlay with one pod of each service, ready as the probes of its manifests say."""
    require_valkey()
    try:
        find_kubectl()
    except KubernetesToolMissing as error:
        missing(f"no kubectl: {error}")
    cluster, keyspace = alone_in_keyspace
    nodes = [address.rpartition(":") for address in cluster.contact_points.split(",")]
    cassandra = "qim-dc1-service.cassandra"
    made = Installation(
        tmp_path_factory.mktemp("production") / "installation",
        images,
        bindings=hiking_group.BINDINGS,
        overrides={
            "QIM_CASSANDRA_CONTACT_POINTS": f"{cassandra}:{nodes[0][2]}",
            "QIM_CASSANDRA_KEYSPACE": keyspace,
            # The nodes share the machine with the tests.
            "QIM_CASSANDRA_TIMEOUT_SECONDS": "20",
        },
        names={cassandra: [host for host, _, _ in nodes]},
    )
    assert made.manifests.get("Job", "qim-schema")
    async with contextlib.AsyncExitStack() as stack:
        stores = [made.store(name, number) for name in ("qim-valkey", "qim-session-valkey") for number in range(2)]
        for store in stores:
            await stack.enter_async_context(store)
        schema = await stack.enter_async_context(made.schema())
        await asyncio.gather(*map(made.until_store_answers, stores))
        assert await schema.wait(SCHEMA_SECONDS) == 0, schema.log_tail()
        pods = {name: await stack.enter_async_context(made.service(name)) for name in SERVICES}
        for probe in ("startup", "readiness"):
            await asyncio.gather(
                *(
                    pod.until_probe(getattr(container, probe), made.addresses[name], container.ports)
                    for name, pod in pods.items()
                    for container in [made.container("Deployment", name)]
                )
            )
        yield made, pods


class TestProductionOverlay:
    """One installation for all; the last test ends it."""

    async def test_its_services_play_the_hiking_group(
        self, installation: tuple[Installation, dict[str, Contained]]
    ) -> None:
        made, pods = installation
        for role, identity in ((Role.GATEWAY, hiking_group.GATEWAY), (Role.BACKEND, hiking_group.BACKEND)):
            made.pki.issue(role, identity)
        outside = Sandbox(hosts=made.hosts)
        command = [sys.executable, "-m", "tests.support.hiking_group", str(made.pki.directory)]
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
        done = await asyncio.to_thread(outside.run, command, environment, timeout=PLAY_SECONDS)
        assert done.returncode == 0, done.stdout + "".join(f"\n{name}: {pod.log_tail()}" for name, pod in pods.items())
        assert "numbers checked" in done.stdout

    async def test_its_pods_can_write_nothing(self, installation: tuple[Installation, dict[str, Contained]]) -> None:
        made, pods = installation
        for name, pod in pods.items():
            found = await asyncio.to_thread(_look, made.sandbox("Deployment", name), {"PATH": "/opt/qim/bin"})
            assert found["written"] == [], name
            if os.geteuid() == 0:
                status = Path(f"/proc/{pod.pid}/status").read_text()
                assert f"Uid:\t{USER}\t{USER}\t{USER}\t{USER}\n" in status
                assert "CapEff:\t0000000000000000\n" in status
                assert "CapBnd:\t0000000000000000\n" in status
                assert "NoNewPrivs:\t1\n" in status

    async def test_a_renewed_certificate_is_served_without_a_restart(
        self, installation: tuple[Installation, dict[str, Contained]]
    ) -> None:
        made, _ = installation
        at = made.addresses["qim-writer"]
        before = await _served_certificate(made, at, 7401)
        for file in made.pki.directory.glob("writer-qim-writer.*"):
            file.unlink()
        made.volumes["qim-writer", "/etc/qim/tls"].update(made.issue("qim-writer"))
        async with asyncio.timeout(RENEWAL_SECONDS):
            while await _served_certificate(made, at, 7401) == before:  # noqa: ASYNC110  another process's doing
                await asyncio.sleep(0.1)

    async def test_they_end_in_order_within_the_grace(
        self, installation: tuple[Installation, dict[str, Contained]]
    ) -> None:
        made, pods = installation
        grace = {name: made.container("Deployment", name).grace_seconds for name in pods}
        ends = await asyncio.gather(*(pod.stop(grace[name]) for name, pod in pods.items()))
        assert dict(zip(pods, ends, strict=True)) == dict.fromkeys(DEPLOYMENTS, 0), [
            pod.log_tail() for pod in pods.values()
        ]


async def _served_certificate(made: Installation, host: str, port: int) -> bytes:
    """What the server at this address shows, in DER."""
    context = ssl.create_default_context(cafile=str(made.pki.services_ca))
    context.set_alpn_protocols(["h2"])
    files = made.pki.issue(Role.GATEWAY, hiking_group.GATEWAY)
    context.load_cert_chain(files.cert, files.key)
    _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname="qim-writer")
    try:
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        assert isinstance(shown, bytes)
        return shown
    finally:
        writer.close()
        with contextlib.suppress(OSError, ssl.SSLError):
            await writer.wait_closed()
