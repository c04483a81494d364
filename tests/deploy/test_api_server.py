"""A real API server takes the manifests, and refuses what is wrong. `make k8s-check` runs here too: it is part of CI.

One server serves this file. The first run of all builds it, which .ci/run begins before everything else.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.valkey import missing

from qim_devkit.kubernetes.apiserver import ApiServer, ApiServerError
from qim_devkit.kubernetes.check import steps
from qim_devkit.kubernetes.dry_run import ENFORCE, DryRun, dry_run
from qim_devkit.kubernetes.targets import Target
from qim_devkit.kubernetes.tools import (
    KubernetesToolMissing,
    find_api_server,
    find_etcd,
    find_kubectl,
    kubernetes_version,
    provide,
)
from qim_devkit.protos import repository_root

pytestmark = pytest.mark.timeout(1800)

OVERLAYS = repository_root() / "deploy" / "k8s" / "overlays"
NAMESPACE: Mapping[str, Any] = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "tried", "labels": {ENFORCE: "restricted"}},
}
WORKLOAD = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: one, namespace: tried}
spec:
  selector: {matchLabels: {app: one}}
  template:
    metadata: {labels: {app: one}}
    spec:
      securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
      containers:
        - name: main
          image: some/image
          securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
          ports: [{name: grpc, containerPort: 7401}, {name: health, containerPort: 7421}]
          resources: {limits: {memory: 64Mi}}
"""


@pytest.fixture(scope="module")
def tools() -> None:
    try:
        find_kubectl(), find_etcd(), find_api_server()
    except KubernetesToolMissing as error:
        missing(f"no Kubernetes API server: {error}")


@pytest.fixture(scope="module")
def server(tools: None) -> Iterator[ApiServer]:
    with ApiServer() as running:
        yield running


def tried(server: ApiServer, text: str) -> DryRun:
    return dry_run(server, [dict(NAMESPACE), *yaml.safe_load_all(text)])


def check(*arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The command line, from the root of the checkout."""
    command = [sys.executable, "-m", "qim_devkit.kubernetes.check", *arguments]
    env = {**os.environ, **(environment or {})}
    return subprocess.run(
        command, cwd=repository_root(), env=env, capture_output=True, text=True, check=False, timeout=300
    )


def overlay(directory: Path, patch: str = "", kind: str = "Deployment", name: str = "qim-writer") -> Path:
    """A directory with production and one patch on it."""
    content: dict[str, Any] = {"resources": [os.path.relpath(OVERLAYS / "production", directory.resolve())]}
    if patch:
        content["patches"] = [{"target": {"kind": kind, "name": name}, "patch": patch}]
    (directory / "kustomization.yaml").write_text(yaml.safe_dump(content))
    return directory


def test_make_k8s_check_finds_no_fault(tools: None) -> None:
    done = subprocess.run(
        ["make", "--no-print-directory", "k8s-check"],
        cwd=repository_root(),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for overlay in ("dev", "production"):
        assert f"deploy/k8s/overlays/{overlay}\n" in done.stdout
    assert "FAULT" not in done.stdout
    assert "skipped" not in done.stdout


@pytest.mark.parametrize("name", ["dev", "production"])
def test_kubectl_applies_an_overlay_in_a_strict_dry_run_without_a_warning(server: ApiServer, name: str) -> None:
    manifests = Target(OVERLAYS / name).render()
    assert dry_run(server, manifests.of("Namespace")).faults == ()  # makes it for real
    strictly = ("apply", "--dry-run=server", "--validate=strict", "--warnings-as-errors")
    answer = server.kubectl(*strictly, f"--kustomize={OVERLAYS / name}")
    assert answer.code == 0, answer.errors
    assert len(answer.output.splitlines()) == len(manifests.documents)


def test_a_workload_that_keeps_the_profile_is_accepted(server: ApiServer) -> None:
    found = tried(server, WORKLOAD)
    assert (found.accepted, found.faults, found.unknown) == (2, (), ())


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("runAsNonRoot: true", "runAsUser: 0", 'would violate PodSecurity "restricted:latest": runAsNonRoot'),
        ("drop: [ALL]", "add: [NET_ADMIN]", 'would violate PodSecurity "restricted:latest"'),
        ("image:", "imag: a\n          image:", 'unknown field "spec.template.spec.containers[0].imag"'),
        ("containerPort: 7421", "containerPort: high", "cannot unmarshal string"),
        ("memory: 64Mi", "memory: 64Mo", "quantities must match"),
        ("name: health", "name: grpc", 'Duplicate value: "grpc"'),
        ("matchLabels: {app: one}", "matchLabels: {app: two}", "`selector` does not match template `labels`"),
        ("namespace: tried", "namespace: tried, labels: {a: ä}", "a valid label must be"),
    ],
    ids=["root", "capability", "unknown field", "wrong type", "quantity", "port name", "selector", "label"],
)
def test_a_wrong_workload_is_refused_by_name(server: ApiServer, old: str, new: str, fault: str) -> None:
    assert old in WORKLOAD
    found = tried(server, WORKLOAD.replace(old, new))
    assert found.accepted == 1
    assert found.faults
    assert all(line.startswith("Deployment/one: ") for line in found.faults)
    assert fault in " ".join(found.faults)


def test_a_pod_that_runs_as_root_is_refused(server: ApiServer) -> None:
    template = yaml.safe_load(WORKLOAD)["spec"]["template"]
    template["spec"]["securityContext"]["runAsUser"] = 0
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "one", "namespace": "tried"},
        "spec": template["spec"],
    }
    (fault,) = dry_run(server, [dict(NAMESPACE), pod]).faults
    assert fault.startswith('Pod/one: pods "one" is forbidden: violates PodSecurity "restricted:latest": runAsUser=0')


def test_pods_in_a_namespace_without_the_profile_are_a_fault(server: ApiServer) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tried"}}
    (fault,) = dry_run(server, [namespace, yaml.safe_load(WORKLOAD)]).faults
    assert fault.startswith("Namespace/tried: pods run there, and it does not enforce the restricted profile")


CERTIFICATE = "{apiVersion: cert-manager.io/v1, kind: Certificate, metadata: {name: one, namespace: tried}, spec: %s}"


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ("{secretName: a, issuerRef: {name: b}, uri: [c]}", 'unknown field "spec.uri"'),
        ("{secretName: a, issuerRef: {name: b}, usages: [servers]}", "spec.usages[0]: Unsupported value"),
        ("{secretName: a, issuerRef: {name: b}, privateKey: {rotationPolicy: Sometimes}}", "Unsupported value"),
        ("{issuerRef: {name: b}}", "spec.secretName: Required value"),
    ],
)
def test_a_wrong_certificate_is_refused(server: ApiServer, spec: str, fault: str) -> None:
    (found,) = tried(server, CERTIFICATE % spec).faults
    assert found.startswith("Certificate/one: ")
    assert fault in found


def test_kinds_that_nobody_brings_are_told_and_misspelled_ones_are_faults(server: ApiServer) -> None:
    found = tried(
        server,
        "{apiVersion: external-secrets.io/v1, kind: ExternalSecret, metadata: {name: a, namespace: tried}}\n---\n"
        "{apiVersion: apps/v1, kind: Deploymnt, metadata: {name: a, namespace: tried}}\n---\n"
        "{apiVersion: apps/v7, kind: Deployment, metadata: {name: a, namespace: tried}}\n---\n"
        "{kind: Service, metadata: {name: a, namespace: tried}}\n",
    )
    assert found.unknown == ("ExternalSecret/a (external-secrets.io/v1)",)
    assert found.faults == (
        "Deploymnt/a: the server has no kind apps/v1 Deploymnt",
        "Deployment/a: the server has no kind apps/v7 Deployment",
        "Service/a: the server has no kind (no apiVersion) Service",
    )


def test_crds_of_an_operator_can_be_added_and_bad_ones_are_refused(server: ApiServer, tmp_path: Path) -> None:
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.org"},
        "spec": {
            "group": "example.org",
            "scope": "Namespaced",
            "names": {"kind": "Thing", "listKind": "ThingList", "plural": "things", "singular": "thing"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"size": {"type": "integer"}}}},
                }
            ],
        },
    }
    file = tmp_path / "crd.yaml"
    file.write_text(yaml.safe_dump(crd))
    server.install(file)
    thing = "{apiVersion: example.org/v1, kind: Thing, metadata: {name: a, namespace: tried}, size: %s}"
    assert tried(server, thing % 5).faults == ()
    (fault,) = tried(server, thing % "large").faults
    assert fault.startswith("Thing/a: ")

    file.write_text("no: CRD\n")
    with pytest.raises(ApiServerError, match=str(file)):
        server.install(file)


def test_the_server_ends_with_what_started_it(tools: None) -> None:
    script = (
        "import sys, time\n"
        "from qim_devkit.kubernetes.apiserver import ApiServer\n"
        "server = ApiServer()\n"
        "server.start()\n"
        "print(*server.pids, server.directory, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        *pids, directory = owner.stdout.readline().split()
        owner.kill()
    assert len(pids) == 2
    end = time.monotonic() + 20
    while alive := [pid for pid in pids if _runs(pid)]:
        assert time.monotonic() < end, alive
        time.sleep(0.02)
    shutil.rmtree(directory)


def _runs(pid: str) -> bool:
    """Whether the process lives; one that nobody has waited for does not."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("patch", "step", "fault"),
    [
        (
            '[{"op": "add", "path": "/spec/template/spec/containers/0/imag", "value": "a"}]',
            "schemas",
            "Deployment/qim-writer spec.template.spec.containers.0: Additional properties",
        ),
        (
            '[{"op": "remove", "path": "/spec/template/spec/containers/0/readinessProbe"}]',
            "the code",
            "Deployment qim-writer",
        ),
        ('[{"op": "remove", "path": "/spec/nothing"}]', "kustomize", "/spec/nothing"),
    ],
    ids=["schema", "code", "kustomize"],
)
def test_the_check_of_a_broken_overlay_ends_with_1_and_names_the_fault(
    tools: None, tmp_path: Path, patch: str, step: str, fault: str
) -> None:
    done = check("--no-server", "--overlay", str(overlay(tmp_path, patch)))
    assert done.returncode == 1, done.stdout + done.stderr
    below = done.stdout.partition(f"\n  {step}")[2].splitlines()[1:]
    told = list(itertools.takewhile(lambda line: line.startswith("    FAULT "), below))
    assert any(fault in line for line in told), done.stdout


def test_what_only_the_server_refuses_is_a_fault_of_its_step(server: ApiServer, tmp_path: Path) -> None:
    memory = '[{"op": "replace", "path": "/spec/template/spec/containers/0/resources/limits/memory", "value": "1Go"}]'
    faults = {step.name: step.faults for step in steps(Target(overlay(tmp_path, memory)), server)}
    (fault,) = faults[f"API server {kubernetes_version()}"]
    assert fault.startswith("Deployment/qim-writer: ")
    assert "quantities must match" in fault


def test_the_check_of_an_overlay_of_ones_own_ends_with_0(tools: None, tmp_path: Path) -> None:
    done = check("--no-server", "--overlay", str(overlay(tmp_path)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "API server: skipped (--no-server)" in done.stdout
    assert "1 target, no fault" in done.stdout


def test_a_directory_that_is_not_there_is_a_fault(tools: None, tmp_path: Path) -> None:
    done = check("--no-server", "--overlay", str(tmp_path / "none"))
    assert done.returncode == 1
    assert "there is no such directory" in done.stdout


def test_without_etcd_the_server_is_skipped_with_its_reason_and_in_ci_that_is_an_error(
    tools: None, tmp_path: Path
) -> None:
    (tmp_path / "kubectl").symlink_to(find_kubectl())
    programs = {"PATH": str(tmp_path), "CI": ""}
    done = check("--overlay", str(OVERLAYS / "dev"), environment=programs)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "API server: skipped, etcd is not installed" in done.stdout

    done = check("--overlay", str(OVERLAYS / "dev"), environment=programs | {"CI": "true"})
    assert done.returncode == 2
    assert "k8s-check: etcd is not installed" in done.stdout


def test_without_go_nothing_is_built_and_the_reason_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KubernetesToolMissing, match=r"built with Go, which is not installed: it needs 1\.25"):
        provide("kube-apiserver", tmp_path / "cache")


def test_a_build_that_fails_is_told_with_the_end_of_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho 'no such host' >&2\nexit 1\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(KubernetesToolMissing, match=r"could not build kubectl v1.*\nno such host"):
        provide("kubectl", tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*/kubectl"))
