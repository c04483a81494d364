"""Manifests read as a kubelet reads them: rendering, environment, files, probes, replicas."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.support.valkey import missing

from qim_devkit.kubernetes.mounts import Source
from qim_devkit.kubernetes.pods import Container, Strategy, container_of, containers_of, replicas, strategy, workloads
from qim_devkit.kubernetes.render import Manifests, RenderError, joined, render

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  replicas: 3
  strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      terminationGracePeriodSeconds: 70
      securityContext: {runAsUser: 7, fsGroup: 8}
      initContainers:
      - {name: first, image: first:1}
      containers:
      - name: shop
        image: shop:1
        command: [serve, --name, "$(NAME)"]
        args: ["$$(NAME)", "$(UNKNOWN)"]
        securityContext: {runAsUser: 9, readOnlyRootFilesystem: true}
        ports: [{name: grpc, containerPort: 7401}]
        readinessProbe: {grpc: {port: 7411}}
        envFrom:
        - configMapRef: {name: settings}
        - {prefix: P_, secretRef: {name: login}}
        - configMapRef: {name: absent, optional: true}
        env:
        - {name: NAME, value: own}
        - {name: GREETING, value: "hello $(NAME)"}
        - {name: ONE, valueFrom: {configMapKeyRef: {name: settings, key: COLOUR}}}
        - {name: TWO, valueFrom: {secretKeyRef: {name: given, key: word}}}
        - {name: NONE, valueFrom: {secretKeyRef: {name: given, key: nothing, optional: true}}}
        volumeMounts:
        - {name: config, mountPath: /etc/shop}
        - {name: key, mountPath: /etc/key, readOnly: true}
        - {name: all, mountPath: /etc/all}
        - {name: config, mountPath: /etc/single/file.txt, subPath: NAME}
        - {name: scratch, mountPath: /tmp}
        - {name: kept, mountPath: /data}
      volumes:
      - {name: config, configMap: {name: settings}}
      - name: key
        secret: {secretName: given, defaultMode: 0440, items: [{key: word, path: deep/word.txt, mode: 0400}]}
      - name: all
        projected:
          defaultMode: 0444
          sources:
          - {secret: {name: given}}
          - {configMap: {name: settings, items: [{key: COLOUR, path: colour}]}}
      - {name: scratch, emptyDir: {}}
      - {name: kept, persistentVolumeClaim: {claimName: kept}}
"""
SETTINGS = "{kind: ConfigMap, metadata: {name: settings}, data: {NAME: settings, COLOUR: red}}"
LOGIN = "{kind: Secret, metadata: {name: login}, data: {user: YW5h}, stringData: {password: secret}}"
GIVEN = {"given": {"word": b"tree"}}


def made_of(*documents: str) -> Manifests:
    return Manifests.parse("\n---\n".join(documents))


def shop() -> Container:
    return container_of(made_of(DEPLOYMENT, SETTINGS, LOGIN), "Deployment", "shop", secrets=GIVEN)


def test_the_environment_is_that_of_all_sources_and_the_containers_own_comes_last() -> None:
    assert shop().environment == {
        "NAME": "own",
        "COLOUR": "red",
        "P_user": "ana",
        "P_password": "secret",
        "GREETING": "hello own",
        "ONE": "red",
        "TWO": "tree",
    }


def test_the_command_is_expanded_from_the_environment() -> None:
    assert shop().entrypoint == ("serve", "--name", "own")
    assert shop().arguments == ("$(NAME)", "$(UNKNOWN)")
    assert shop().command == ("serve", "--name", "own", "$(NAME)", "$(UNKNOWN)")


def test_mounted_files_have_their_content_mode_and_source() -> None:
    container = shop()
    assert container.files == {
        "/etc/shop/NAME": b"settings",
        "/etc/shop/COLOUR": b"red",
        "/etc/key/deep/word.txt": b"tree",
        "/etc/all/word": b"tree",
        "/etc/all/colour": b"red",
        "/etc/single/file.txt": b"settings",
    }
    assert container.file_modes["/etc/shop/NAME"] == 0o644
    assert container.file_modes["/etc/key/deep/word.txt"] == 0o400
    assert container.file_modes["/etc/all/colour"] == 0o444
    assert container.sources["/etc/key/deep/word.txt"] == Source("Secret", "given", "word")
    assert container.directories == {"/tmp": "emptyDir", "/data": "persistentVolumeClaim"}  # noqa: S108


def test_a_container_has_its_own_security_before_its_pods() -> None:
    container = shop()
    assert (container.run_as_user, container.fs_group, container.read_only_root) == (9, 8, True)


def test_probes_ports_grace_and_labels_are_as_the_manifest_says() -> None:
    container = shop()
    assert container.readiness == {"grpc": {"port": 7411}}
    assert container.startup is None
    assert container.ports == {"grpc": 7401}
    assert (container.grace_seconds, container.labels) == (70, {"app": "shop"})


def test_an_init_container_is_found_by_its_name() -> None:
    manifests = made_of(DEPLOYMENT, SETTINGS, LOGIN)
    assert container_of(manifests, "Deployment", "shop", secrets=GIVEN, container="first").image == "first:1"
    with pytest.raises(KeyError, match="there is no container second"):
        container_of(manifests, "Deployment", "shop", secrets=GIVEN, container="second")


@pytest.mark.parametrize(
    ("documents", "words"),
    [
        pytest.param([SETTINGS, LOGIN], "there is no Deployment shop; there are: none", id="no-workload"),
        pytest.param([DEPLOYMENT, LOGIN], "there is no ConfigMap settings", id="no-config-map"),
        pytest.param([DEPLOYMENT, SETTINGS], "there is no Secret login", id="no-secret"),
        pytest.param([DEPLOYMENT, SETTINGS.replace("COLOUR", "COLOR"), LOGIN], "no key COLOUR", id="no-key"),
        pytest.param(
            [DEPLOYMENT.replace("name: scratch, emptyDir", "name: s, emptyDir"), SETTINGS, LOGIN], "no volume"
        ),
    ],
)
def test_what_a_container_needs_and_nobody_has_is_named(documents: list[str], words: str) -> None:
    with pytest.raises(KeyError, match=words):
        container_of(made_of(*documents), "Deployment", "shop", secrets=GIVEN)


def test_a_variable_that_only_a_cluster_knows_is_refused() -> None:
    pod = """
kind: Pod
metadata: {name: one}
spec:
  containers: [{name: one, env: [{name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]}]
"""
    with pytest.raises(ValueError, match="IP is from fieldRef"):
        container_of(made_of(pod), "Pod", "one")


def test_volumes_of_claim_templates_can_be_written() -> None:
    stateful = """
kind: StatefulSet
metadata: {name: store}
spec:
  template: {spec: {containers: [{name: store, volumeMounts: [{name: data, mountPath: /data}]}]}}
  volumeClaimTemplates: [{metadata: {name: data}}]
"""
    found = container_of(made_of(stateful), "StatefulSet", "store")
    assert found.directories == {"/data": "persistentVolumeClaim"}
    assert found.grace_seconds == 30


def test_workloads_and_their_containers_are_all_there() -> None:
    template = "{spec: {containers: [{name: x}]}}"
    cron = f"{{kind: CronJob, metadata: {{name: c}}, spec: {{jobTemplate: {{spec: {{template: {template}}}}}}}}}"
    found = list(workloads(made_of(DEPLOYMENT, SETTINGS, cron)))
    assert [one["metadata"]["name"] for one in found] == ["shop", "c"]
    assert [[part["name"] for part in containers_of(one)] for one in found] == [["first", "shop"], ["x"]]


SCALER = """
kind: HorizontalPodAutoscaler
metadata: {name: any}
spec: {minReplicas: 5, scaleTargetRef: {kind: Deployment, name: shop}}
"""


def test_replicas_are_the_workloads_or_the_autoscalers_least() -> None:
    free = DEPLOYMENT.replace("  replicas: 3\n", "")
    assert replicas(made_of(DEPLOYMENT), "shop") == 3
    assert replicas(made_of(free, SCALER), "shop") == 5
    assert replicas(made_of(free), "shop") == 1
    with pytest.raises(KeyError, match="no Deployment or StatefulSet stop"):
        replicas(made_of(free), "stop")


def test_the_strategy_is_taken_at_the_least_number_of_pods() -> None:
    assert strategy(made_of(DEPLOYMENT), "shop") == Strategy(max_unavailable=0, max_surge=1)
    plain = DEPLOYMENT.replace(
        "  strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}\n", ""
    )
    assert strategy(made_of(plain), "shop") == Strategy(max_unavailable=0, max_surge=1)
    six = plain.replace("replicas: 3", "replicas: 6")
    assert strategy(made_of(six), "shop") == Strategy(max_unavailable=1, max_surge=2)
    with pytest.raises(ValueError, match="its strategy is Recreate"):
        strategy(made_of(plain.replace("  replicas: 3", "  strategy: {type: Recreate}")), "shop")


def test_a_directory_is_rendered_with_its_generated_names(tmp_path: Path) -> None:
    if shutil.which("kubectl") is None:
        missing("no kubectl")
    (tmp_path / "kustomization.yaml").write_text(
        "namePrefix: my-\nresources: [pod.yaml]\nconfigMapGenerator: [{name: settings, literals: [COLOUR=red]}]\n"
    )
    (tmp_path / "pod.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: one}\n"
        "spec: {containers: [{name: one, envFrom: [{configMapRef: {name: settings}}]}]}\n"
    )
    manifests = render(tmp_path)
    assert container_of(manifests, "Pod", "my-one").environment == {"COLOUR": "red"}
    assert manifests.of("ConfigMap")[0]["metadata"]["name"].startswith("my-settings-")


def test_what_cannot_be_rendered_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RenderError, match="no such directory"):
        render(tmp_path / "absent")
    with pytest.raises(RenderError, match=r"kubectl-that-is-not-there kustomize"):
        render(tmp_path, kubectl="kubectl-that-is-not-there")
    if shutil.which("kubectl") is not None:
        with pytest.raises(RenderError, match="kustomization"):
            render(tmp_path)


@pytest.mark.parametrize("text", ["[1, 2]", "{kind: Pod}", "{kind: Pod, metadata: {name: 3}}", "a: b: c", "words"])
def test_documents_that_are_no_objects_are_refused(text: str) -> None:
    with pytest.raises(RenderError):
        Manifests.parse(text)


def test_empty_documents_are_left_out_and_parts_can_be_joined() -> None:
    first, second = made_of(SETTINGS, "", "# nothing"), made_of(LOGIN)
    assert len(first.documents) == 1
    assert [one["kind"] for one in joined([first, second]).documents] == ["ConfigMap", "Secret"]
