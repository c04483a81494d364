"""docs/operations.md: its commands, as they stand there, on a real API server and on a real Valkey.

There is no node, so what controllers and the kubelet would do is done here: claims of StatefulSets, certificates, the
garbage collector's part in `--cascade=orphan`; and `kubectl exec` is a sandbox with the volume and files of the pod.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.operations_page import blocks, commands
from tests.support.pod import ValkeyPod, write_kubectl
from tests.support.sandbox import require_sandbox
from tests.support.valkey import missing, require_valkey

from qim_client.config import ClientConfig
from qim_common.tokens import parse_keys
from qim_devkit.kubernetes.apiserver import ApiServer
from qim_devkit.kubernetes.tools import KubernetesToolMissing, find_kubectl
from qim_devkit.protos import repository_root
from qim_devkit.suite import Suite

SECONDS = 120.0
CLASS = """
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast-retained}
provisioner: example.org/fast
allowVolumeExpansion: true
reclaimPolicy: Retain
"""
pytestmark = [pytest.mark.server, pytest.mark.slow]


@pytest.fixture
def server() -> Iterator[ApiServer]:
    try:
        with ApiServer() as server:
            yield server
    except KubernetesToolMissing as error:
        missing(str(error))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what the page's commands read and write."""
    shutil.copytree(repository_root() / "deploy", tmp_path / "checkout" / "deploy")
    (tmp_path / "bin").mkdir()
    return tmp_path / "checkout"


def shell(script: str, checkout: Path, **environment: str) -> str:
    """What the commands print, of which each must succeed."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=checkout,
        env={**os.environ, "PATH": f"{checkout.parent / 'bin'}:{os.environ['PATH']}", **environment},
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout


class Cluster:
    """The page's story of a production installation, and what no node is there to do."""

    def __init__(self, server: ApiServer, checkout: Path) -> None:
        self.server = server
        self.checkout = checkout
        (checkout.parent / "bin" / "kubectl").symlink_to(find_kubectl())
        self._blocks = iter(commands("cluster"))

    def next(self, beginning: str) -> str:
        """Run the next block, which begins so."""
        script = next(self._blocks)
        assert script.startswith(beginning), f"the page's order is another: {script}"
        return shell(script, self.checkout, KUBECONFIG=str(self.server.kubeconfig))

    def rest(self) -> list[str]:
        """The blocks that were not run."""
        return list(self._blocks)

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """What a command of the test's own prints."""
        answer = self.server.kubectl(*arguments, stdin=stdin)
        assert answer.code == 0, answer.errors
        return answer.output

    def names(self, kind: str) -> set[str]:
        """The objects of a kind in the namespace."""
        found = json.loads(self.kubectl("-n", "qim", "get", kind, "-o", "json"))
        return {one["metadata"]["name"] for one in found["items"]}

    def secret(self, name: str, key: str) -> str:
        """One value of a Secret."""
        template = f'go-template={{{{index .data "{key}" | base64decode}}}}'
        return self.kubectl("-n", "qim", "get", "secret", name, "-o", template)

    def bind_claims(self) -> None:
        """What the StatefulSet's controller and the driver make of the templates of qim-valkey."""
        stateful = json.loads(self.kubectl("-n", "qim", "get", "statefulset", "qim-valkey", "-o", "json"))
        (template,) = stateful["spec"]["volumeClaimTemplates"]
        for number in range(stateful["spec"]["replicas"]):
            name = f"{template['metadata']['name']}-qim-valkey-{number}"
            claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}}
            self.kubectl("-n", "qim", "create", "-f", "-", stdin=json.dumps({**claim, "spec": template["spec"]}))
            size = template["spec"]["resources"]["requests"]
            status = {"status": {"phase": "Bound", "capacity": size, "accessModes": ["ReadWriteOnce"]}}
            patch = ("--subresource=status", "--type=merge", "--patch", json.dumps(status))
            self.kubectl("-n", "qim", "patch", "pvc", name, *patch)

    def orphan(self) -> None:
        """The garbage collector's part: let a StatefulSet go whose pods are to stay. Returns when it is gone."""
        end = time.monotonic() + SECONDS
        while "qim-valkey" in (found := self.names("statefulset")) and time.monotonic() < end:
            told = json.loads(self.kubectl("-n", "qim", "get", "statefulset", "-o", "json"))["items"]
            for one in told:
                if one["metadata"]["name"] in found and "orphan" in one["metadata"].get("finalizers", ()):
                    patch = ("--type=merge", "--patch", '{"metadata": {"finalizers": null}}')
                    self.server.kubectl("-n", "qim", "patch", "statefulset", one["metadata"]["name"], *patch)
            time.sleep(0.1)


def test_an_installation_is_made_changed_and_removed_by_the_pages_commands(server: ApiServer, checkout: Path) -> None:
    cluster = Cluster(server, checkout)
    cluster.kubectl("apply", "-f", "-", stdin=CLASS)
    (checkout / "cassandra.password").write_text("a password")

    cluster.next("kubectl apply -f deploy/k8s/base/namespace.yaml")
    password = cluster.secret("qim-valkey-password", "password")
    assert cluster.secret("qim-valkey-auth", "auth.conf") == f"requirepass {password}\n"
    assert cluster.secret("qim-cassandra-password", "password") == "a password"
    first_key = cluster.secret("qim-token-keys", "token.keys")

    cluster.next("cp -r deploy/k8s/examples/own-overlay")
    cluster.next("kubectl kustomize")
    cluster.next("kubectl apply -f release.yaml -l")
    assert cluster.names("job") == {"qim-schema"}
    assert cluster.names("deployment") <= {"qim-maintenance"}
    assert cluster.names("statefulset") == set()
    cluster.next("kubectl apply -f release.yaml")
    assert cluster.names("deployment") >= {"qim-writer", "qim-session", "qim-admin", "qim-archiver", "qim-maintenance"}
    assert cluster.names("prometheusrule") == {"qim"}
    secrets = mounted_secrets(cluster)
    made_by_cert_manager = {name for name in secrets if name.endswith("-tls")} | {"qim-operators-ca"}
    assert secrets - made_by_cert_manager <= cluster.names("secret"), "a pod would wait for a Secret"

    cluster.next("kubectl apply -f deploy/k8s/examples/clients")
    for name in ("operator-ana-tls", "qim-services-ca"):
        files = ("--from-literal=tls.crt=certificate", "--from-literal=tls.key=key")
        cluster.kubectl("-n", "qim", "create", "secret", "generic", name, *files)
    cluster.next("umask 077")
    profile = ClientConfig.load(checkout / "client.toml").require_operator()
    assert [path.read_text() for path in (profile.tls.cert, profile.tls.key)] == ["certificate", "key"]
    assert profile.tls.key.stat().st_mode & 0o077 == 0

    release = checkout / "deploy/k8s/overlays/chat-eu/kustomization.yaml"
    release.write_text(release.read_text().replace("newTag: 0.1.0", "newTag: 0.2.0"))
    cluster.next("kubectl kustomize")
    assert "qimctl:0.2.0" in cluster.kubectl("-n", "qim", "get", "job", "qim-schema", "-o", "yaml")
    assert "qim-writer:0.1.0" in cluster.kubectl("-n", "qim", "get", "deployment", "qim-writer", "-o", "yaml")

    cluster.next("kubectl -n qim patch hpa")
    cluster.bind_claims()
    collector = threading.Thread(target=cluster.orphan)
    collector.start()
    cluster.next("for number in 0 1")
    collector.join()
    assert "80Gi" in cluster.kubectl("-n", "qim", "get", "pvc", "data-qim-valkey-1", "-o", "yaml")
    (patch,) = (block.content for block in blocks() if "volumeClaimTemplates/0" in block.content)
    release.write_text(release.read_text().replace("\npatches:\n", f"\npatches:\n{patch}"))
    assert cluster.next("kubectl apply -k").endswith("80Gi")

    cluster.next("kubectl -n qim delete pvc data-qim-valkey-0")
    rotated(cluster, first_key.strip())
    cluster.next("kubectl delete -f release.yaml")
    assert cluster.rest() == []


def rotated(cluster: Cluster, old: str) -> None:
    """The three steps of the token keys; each is a file that services take."""

    def lines() -> list[str]:
        text = cluster.secret("qim-token-keys", "token.keys")
        assert parse_keys(text.encode())
        return text.split()

    cluster.next("keys=$(kubectl")
    before, new = lines()
    assert before == old
    cluster.next("kubectl -n qim get secret qim-token-keys")
    assert lines() == [new, old]
    cluster.next("kubectl -n qim get secret qim-token-keys")
    assert lines() == [new]


def mounted_secrets(cluster: Cluster) -> set[str]:
    """The Secrets that pods mount."""
    found: set[str] = set()
    for kind in ("deployment", "statefulset", "job"):
        for one in json.loads(cluster.kubectl("-n", "qim", "get", kind, "-o", "json"))["items"]:
            for volume in one["spec"]["template"]["spec"].get("volumes", ()):
                sources = [volume, *volume.get("projected", {}).get("sources", ())]
                secrets = [part["secret"] for part in sources if "secret" in part]
                found |= {secret.get("secretName") or secret["name"] for secret in secrets}
    return found


def test_dev_is_applied_by_the_pages_command(server: ApiServer, checkout: Path) -> None:
    (checkout.parent / "bin" / "kubectl").symlink_to(find_kubectl())
    (script,) = commands("dev")
    # The namespace and what is in it come in one go, as they do in a cluster.
    assert "deployment.apps/qim-writer created" in shell(script, checkout, KUBECONFIG=str(server.kubeconfig))


def test_a_valkey_takes_two_passwords_until_it_is_told_to_forget_the_old_one(checkout: Path, tmp_path: Path) -> None:
    require_valkey()
    require_sandbox()
    second, forget = commands("valkey password")
    with ValkeyPod(tmp_path / "pod", password="the old one") as pod:
        write_kubectl(checkout.parent / "bin", pod)
        shell(second + 'printf %s "$new" > new\n', checkout)
        new = (checkout / "new").read_text()
        assert [pod.takes(password) for password in ("the old one", new, "another")] == [True, True, False]
        assert "qim-valkey-0: not yet" in shell(f'new="$(cat new)"\n{forget}', checkout)
        assert [pod.takes(password) for password in ("the old one", new)] == [True, True]
        pod.mount(new)
        shell(f'new="$(cat new)"\n{forget}', checkout)
        assert [pod.takes(password) for password in ("the old one", new)] == [False, True]


def answers(directory: Path) -> list[str]:
    """What the command lines tell of the group, as people see it."""
    program = Path(shutil.which("qim") or repository_root() / ".venv/bin/qim")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("QIM_")}
    environment["QIM_CONFIG"] = str(directory / "client.toml")

    def told(*words: str) -> str:
        command = [str(program), "--as", *words]
        done = subprocess.run(command, env=environment, capture_output=True, check=False, timeout=SECONDS)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    return [told(who, *what) for who in ("ana", "ben") for what in (("list",), ("history", "hikers"))]


async def test_services_answer_as_before_once_the_pages_commands_have_restored_a_backup(
    checkout: Path, tmp_path: Path
) -> None:
    require_valkey()
    require_sandbox()
    directory = tmp_path / "suite"
    program = str(shutil.which("qim") or repository_root() / ".venv/bin/qim")
    environment = {"QIM_CONFIG": str(directory / "client.toml"), "qim": program}
    (backup,), (restore,) = commands("valkey backup"), commands("valkey restore")
    async with Suite(directory, valkeys=1) as suite:
        pod = ValkeyPod.of(suite.paths.valkey("valkey-0"), *suite.valkey_addresses[0].split(":"))
        write_kubectl(checkout.parent / "bin", pod)
        shell("$qim --as ana group create hikers ben", checkout, **environment)
        shell('$qim --as ana send hikers "before the copy"', checkout, **environment)
        before = answers(directory)
        shell(backup, checkout)
        shell('$qim --as ben send hikers "after the copy"', checkout, **environment)
        assert answers(directory) != before

        for service in reversed(suite.service_names):
            await suite.kill(service)
        shell(commands("valkey stop")[0], checkout)
        shell(restore, checkout)
        await suite.restart("valkey-0")
        shell(commands("valkey start")[0], checkout)
        for service in suite.service_names:
            await suite.restart(service)
        assert answers(directory) == before
        shell('$qim --as ben send hikers "after the restore"', checkout, **environment)
