"""Files with contents that no process takes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.spoiling import set_variable

BINDINGS = "Deployment qim-admin, container admin: QIM_BINDINGS_FILE: the bindings: "

STORIES: list[Any] = [
    pytest.param(set_variable("qim-bindings", "bindings.yaml", content), words, id=name)
    for name, content, words in (
        ("empty-bindings", "", f"{BINDINGS}must be a mapping"),
        ("bindings-that-are-a-list", "- chat\n", f"{BINDINGS}must be a mapping"),
        ("bindings-that-are-no-yaml", "gateways: {", f"{BINDINGS}not YAML"),
        ("a-section-that-is-none", "gatewayz: {}\n", "gatewayz"),
        ("a-tenant-in-quotation-marks", 'gateways: {chat: {tenants: ["1"]}}\n', BINDINGS),
    )
] + [
    pytest.param(
        lambda draft: draft.container("qim-admin")["volumeMounts"].append(
            {"name": "bindings", "mountPath": "/mnt/bindings.yaml", "subPath": "bindings.yaml"}
        ),
        "Deployment qim-admin, container admin: /mnt/bindings.yaml never changes",
        id="a-file-that-is-not-updated",
    )
]
