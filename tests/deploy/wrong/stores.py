"""Stores that would lose data, or that do not fit."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.manifests import Draft
from tests.support.spoiling import edit_line, in_container, set_in, set_variable, spec


def with_annotation_of_no_store(draft: Draft) -> None:
    draft.container("qim-valkey", "StatefulSet")["args"] = ["/etc/valkey/valkey.conf", "--appendfsync", "no"]


STORIES: list[Any] = [
    pytest.param(
        set_variable("qim-stores-config", "QIM_COMMIT_BUCKETS", "512"),
        "PrometheusRule qim: QimPartitionsNotHeld does not compare with 512",
        id="an-alert-of-another-number-of-buckets",
    ),
    pytest.param(
        edit_line("qim-valkey-config", "valkey.conf", "appendfsync always", "appendfsync\teverysec"),
        "appendfsync is 'everysec'",
        id="appendfsync-behind-a-tab",
    ),
    pytest.param(
        edit_line("qim-valkey-config", "valkey.conf", "appendonly yes", '"appendonly" "no"'),
        "appendonly is 'no'",
        id="appendonly-in-quotation-marks",
    ),
    pytest.param(
        edit_line("qim-valkey-config", "valkey.conf", "save", "user default on nopass ~* +@all\nsave"),
        "the user default needs no password",
        id="a-user-without-a-password",
    ),
    pytest.param(
        edit_line("qim-valkey-config", "valkey.conf", "save", "cluster-enabled yes\nsave"),
        "cluster-enabled yes",
        id="a-cluster",
    ),
    pytest.param(
        edit_line("qim-valkey-config", "valkey.conf", "bind * -::*", "bind 127.0.0.1"),
        "listens on 127.0.0.1 only",
        id="a-store-for-itself",
    ),
    pytest.param(
        lambda draft: (
            draft.pod("qim-valkey", "StatefulSet")["volumes"].append({"name": "spare", "emptyDir": {}}),
            draft.container("qim-valkey", "StatefulSet")["volumeMounts"].append(
                {"name": "spare", "mountPath": "/data/appendonlydir"}
            ),
        ),
        "/data is no volume of its own",
        id="an-empty-directory-over-the-file",
    ),
    pytest.param(
        set_in("StatefulSet", "qim-valkey", "template.spec.securityContext.fsGroup", None),
        "StatefulSet qim-valkey, container valkey: cannot write to its volume",
        id="a-volume-of-roots",
    ),
    pytest.param(
        set_in("StatefulSet", "qim-valkey", "template.spec.volumes.0.projected.defaultMode", 0o644),
        "/etc/valkey/auth/auth.conf has the mode 0644",
        id="a-password-that-everybody-may-read",
    ),
    pytest.param(
        lambda draft: draft.pod("qim-valkey", "StatefulSet")["volumes"][0]["projected"]["sources"].pop(),
        "its readiness probe reads /etc/valkey/auth/password",
        id="a-probe-without-its-password",
    ),
    pytest.param(
        edit_line("qim-valkey-config", "memory.conf", "5gb", "lots"), "lots is no amount", id="an-amount-that-is-none"
    ),
    pytest.param(
        edit_line("qim-valkey-config", "valkey.conf", "appendfsync always", "appendfsync everysec"),
        "appendfsync is 'everysec'",
        id="appendfsync-everysec",
    ),
    pytest.param(
        edit_line("qim-valkey-config", "valkey.conf", "appendonly yes", "appendonly no"), "appendonly", id="appendonly"
    ),
    pytest.param(
        edit_line("qim-valkey-config", "valkey.conf", "noeviction", "allkeys-lru"), "maxmemory-policy", id="eviction"
    ),
    pytest.param(
        edit_line("qim-valkey-config", "valkey.conf", "min-size 512mb", "min-size 64mb"),
        "rewrites its file",
        id="rewrites",
    ),
    pytest.param(
        edit_line("qim-valkey-config", "valkey.conf", "port 6379", "port 6379\nreplicaof other 6379"),
        "replica",
        id="replica",
    ),
    pytest.param(
        edit_line("qim-valkey-config", "valkey.conf", "include /etc/valkey/auth/auth.conf", ""),
        "no password",
        id="no-login",
    ),
    pytest.param(
        edit_line("qim-valkey-config", "valkey.conf", "include /etc/valkey/auth/auth.conf", "requirepass word"),
        "valkey.conf holds a password",
        id="a-password-in-a-config-map",
    ),
    pytest.param(
        edit_line("qim-valkey-config", "valkey.conf", "include /etc/valkey/memory.conf", ""),
        "maxmemory",
        id="no-maxmemory",
    ),
    pytest.param(edit_line("qim-valkey-config", "memory.conf", "5gb", "7gb"), "maxmemory 7gb", id="too-much-memory"),
    pytest.param(with_annotation_of_no_store, "--appendfsync", id="an-argument-beside-the-file"),
    pytest.param(
        in_container("qim-valkey", "image", "valkey/valkey:9.0.1", "StatefulSet"), "aof-load-truncated", id="old-valkey"
    ),
    pytest.param(
        set_in("StatefulSet", "qim-valkey", "volumeClaimTemplates", None), "there is no volume data", id="no-volume"
    ),
    pytest.param(
        lambda draft: (
            spec(draft, "StatefulSet", "qim-valkey").pop("volumeClaimTemplates"),
            draft.pod("qim-valkey", "StatefulSet")["volumes"].append({"name": "data", "emptyDir": {}}),
        ),
        "StatefulSet qim-valkey: /data is no volume of its own",
        id="an-empty-dir-for-a-store",
    ),
    pytest.param(
        set_in("StatefulSet", "qim-valkey", "volumeClaimTemplates.0.spec.resources.requests.storage", "5Gi"),
        "too small",
        id="small-volume",
    ),
    pytest.param(
        set_in("StatefulSet", "qim-valkey", "persistentVolumeClaimRetentionPolicy.whenScaled", "Delete"),
        "its volumes go with it",
        id="volumes-that-go",
    ),
]
