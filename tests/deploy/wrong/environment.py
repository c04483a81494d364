"""Environments, programs and images that are wrong."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.manifests import Draft
from tests.support.spoiling import (
    extra_variable,
    in_container,
    mount,
    relabel,
    secret_of,
    set_in,
    set_variable,
)


def change_for_session_alone(draft: Draft) -> None:
    extra = {"name": "QIM_COMMIT_BUCKETS", "value": "128"}
    draft.container("qim-session").setdefault("env", []).append(extra)


STORIES: list[Any] = [
    pytest.param(
        lambda draft: draft.get("Job", "qim-schema")["spec"]["template"]["spec"]["containers"][0]["args"].pop(),
        "Job qim-schema, container schema: runs schema",
        id="a-job-that-prints-its-help",
    ),
    pytest.param(
        lambda draft: draft.get("ConfigMap", "qim-writer-config")["metadata"].pop("namespace"),
        "has no namespace",
        id="an-object-that-is-nowhere",
    ),
    pytest.param(
        lambda draft: draft.get("Job", "qim-schema")["spec"]["template"].pop("metadata"),
        "Job qim-schema, container schema",
        id="a-job-without-labels",
    ),
    pytest.param(
        lambda draft: draft.pod("qim-writer")["containers"].clear(), "Deployment qim-writer", id="no-container"
    ),
    pytest.param(
        lambda draft: draft.container("qim-maintenance").pop("command"),
        "Deployment qim-maintenance, container maintenance: runs the entry point",
        id="maintenance-that-ends-at-once",
    ),
    pytest.param(
        lambda draft: draft.get("Service", "qim-writer").pop("spec"),
        "cannot be read or checked: KeyError('spec')",
        id="an-object-of-no-form",
    ),
    pytest.param(set_variable("qim-writer-config", "QIM_COLOUR", "red"), "QIM_COLOUR is set", id="unknown-variable"),
    pytest.param(
        set_variable("qim-process-config", "QIM_LOG_LEVEL", "LOUD"), "QIM_LOG_LEVEL", id="a-value-that-is-not-taken"
    ),
    pytest.param(
        set_variable("qim-writer-config", "QIM_TOKEN_KEY_FILE", "/etc/qim/tokens/keys"),
        "qim-writer, container writer: QIM_TOKEN_KEY_FILE: names no file",
        id="a-file-that-is-not-mounted",
    ),
    pytest.param(change_for_session_alone, "QIM_COMMIT_BUCKETS differs", id="buckets-of-one-service-alone"),
    pytest.param(
        extra_variable("qim-session", {"name": "QIM_CASSANDRA_KEYSPACE", "value": "other"}),
        "QIM_CASSANDRA_KEYSPACE differs",
        id="another-keyspace-for-one-service",
    ),
    pytest.param(
        extra_variable("qim-admin", {"name": "QIM_TRUST_DOMAIN", "value": "other"}),
        "QIM_TRUST_DOMAIN differs",
        id="another-trust-domain-for-one-service",
    ),
    pytest.param(
        extra_variable("qim-admin", {"name": "TZ", "value": "x"}), "TZ is no variable of qim", id="foreign-variable"
    ),
    pytest.param(
        extra_variable(
            "qim-push-webhook",
            {"name": "QIM_LOG_LEVEL", "valueFrom": {"secretKeyRef": {"name": "qim-token-keys", "key": "token.keys"}}},
        ),
        "qim-push-webhook, container push: QIM_LOG_LEVEL holds a secret",
        id="a-secret-in-the-environment",
    ),
    pytest.param(
        set_variable("qim-stores-config", "QIM_REDIS_ADDR", "redis://:word@qim-valkey-0.qim-valkey:6379"),
        "QIM_REDIS_ADDR holds a password",
        id="a-password-in-an-address",
    ),
    pytest.param(
        in_container("qim-writer", "envFrom.0.configMapRef.name", "qim-proces-config"),
        "there is no ConfigMap qim-proces-config",
        id="a-config-map-that-is-not-there",
    ),
    pytest.param(
        in_container("qim-writer", "envFrom", []), "qim-writer, container writer: QIM_LISTEN", id="no-environment"
    ),
    pytest.param(
        secret_of("qim-session", "tokens", "qim-webhook-secret"), "no file", id="another-secret-for-the-token-keys"
    ),
    pytest.param(
        secret_of("qim-session", "tokens", "qim-tokens"), "there is no Secret qim-tokens", id="no-such-secret"
    ),
    pytest.param(
        mount("qim-admin", {"name": "tokens", "secret": {"secretName": "qim-token-keys"}}),
        "/mnt/tokens/token.keys",
        id="a-mounted-secret-that-nobody-reads",
    ),
    pytest.param(
        set_in("Deployment", "qim-writer", "template.spec.volumes.0.secret.defaultMode", 0o444),
        "qim-writer, container writer: /etc/qim/tls/",
        id="a-key-that-everybody-may-read",
    ),
    pytest.param(
        set_in("Deployment", "qim-writer", "template.spec.securityContext.fsGroup", None),
        "its user cannot read",
        id="files-of-a-group-that-the-pod-has-not",
    ),
    pytest.param(
        lambda draft: draft.container("qim-archiver").pop("command"),
        "qim-archiver, container archiver: runs qim-writer",
        id="the-archiver-runs-the-writer",
    ),
    pytest.param(
        lambda draft: draft.container("qim-archiver").update(args=draft.container("qim-archiver").pop("command")),
        "runs qim-archiver, which is no program of qim",
        id="arguments-in-place-of-a-command",
    ),
    pytest.param(in_container("qim-writer", "image", "qim-writer:latest"), "is whatever is newest", id="tag-latest"),
    pytest.param(in_container("qim-writer", "image", "qim-writer"), "is whatever is newest", id="no-tag"),
    pytest.param(in_container("qim-session", "image", "qim-writer:0.1.0"), "Deployment qim-session", id="wrong-image"),
    pytest.param(
        relabel("qim-session", "app.kubernetes.io/component", "writer"), "Deployment qim-session", id="wrong-component"
    ),
]
