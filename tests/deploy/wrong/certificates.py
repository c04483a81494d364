"""Certificates and authorities that are wrong."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.spoiling import mount, remove, secret_of, set_in, set_variable, spec

CERTIFICATE = "Certificate"


STORIES: list[Any] = [
    pytest.param(
        set_in(CERTIFICATE, "qim-services-ca", "privateKey.rotationPolicy", "Always"),
        "Certificate qim-services-ca: its key",
        id="an-authority-with-changing-keys",
    ),
    pytest.param(remove("Issuer", "qim-bootstrap"), "is signed by qim-bootstrap", id="no-bootstrap"),
    pytest.param(set_in("Issuer", "qim-services", "ca", None), "signs with nothing", id="an-issuer-of-nothing"),
    pytest.param(
        set_in(CERTIFICATE, "qim-session", "uris", ["spiffe://qim.local/qim/writer/qim-session"]),
        "Certificate qim-session: names the role writer",
        id="another-role",
    ),
    pytest.param(
        set_in(CERTIFICATE, "qim-archiver", "uris", ["spiffe://qim.local/qim/writer/qim-writer"]),
        "Certificate qim-archiver: names qim-writer",
        id="another-name",
    ),
    pytest.param(
        set_in(CERTIFICATE, "qim-admin", "uris", ["spiffe://qim.example/qim/admin/qim-admin"]),
        "Certificate qim-admin: is of qim.example",
        id="another-trust-domain",
    ),
    pytest.param(
        set_in(CERTIFICATE, "qim-writer", "uris", ["spiffe://qim.local/qim/owner/qim-writer"]),
        "Certificate qim-writer: names no peer of qim",
        id="a-role-that-is-none",
    ),
    pytest.param(
        set_in(CERTIFICATE, "qim-writer", "uris", ["spiffe://qim.local/qim/writer/qim-writer", "spiffe://qim.local/x"]),
        "Certificate qim-writer: names no peer of qim",
        id="two-uris",
    ),
    pytest.param(
        set_in(CERTIFICATE, "qim-writer", "issuerRef.name", "qim-operators"),
        "Certificate qim-writer: is signed by Issuer qim-operators",
        id="the-other-authority",
    ),
    pytest.param(
        set_in(CERTIFICATE, "qim-writer", "issuerRef.name", "qim-bootstrap"), "Certificate qim-writer", id="self-signed"
    ),
    pytest.param(
        set_in("Issuer", "qim-services", "ca.secretName", "qim-operators-ca"), "Issuer qim-services", id="issuers-key"
    ),
    pytest.param(remove("Issuer", "qim-operators"), "Issuer qim-operators: is not there", id="no-issuer"),
    pytest.param(
        set_in(CERTIFICATE, "qim-session", "dnsNames", ["qim-session.qim"]),
        "Certificate qim-session: lacks the name qim-session,",
        id="a-name-that-it-lacks",
    ),
    pytest.param(
        lambda draft: spec(draft, CERTIFICATE, "qim-session")["dnsNames"].append("qim-writer"),
        "Certificate qim-session: has the name qim-writer of another Service",
        id="the-name-of-another",
    ),
    pytest.param(
        set_in(CERTIFICATE, "qim-writer", "usages", ["server auth"]), "may not be used as client auth", id="one-usage"
    ),
    pytest.param(
        set_in(CERTIFICATE, "qim-writer", "privateKey.rotationPolicy", "Never"), "Certificate qim-writer", id="old-key"
    ),
    pytest.param(set_in(CERTIFICATE, "qim-writer", "secretName", "other"), "qim-writer", id="another-secret-name"),
    pytest.param(
        secret_of("qim-writer", "tls", "qim-session-tls"),
        "Certificate qim-session: names the role session, and qim-writer runs qim-writer",
        id="the-certificate-of-another-mounted",
    ),
    pytest.param(
        secret_of("qim-archiver", "tls", "qim-writer-tls"), "qim-archiver and qim-writer has it", id="one-for-two"
    ),
    pytest.param(
        set_variable("qim-admin-config", "QIM_OPERATOR_CA_FILE", "/etc/qim/tls/ca.crt"),
        "QIM_OPERATOR_CA_FILE is not tls.crt of the Secret qim-operators-ca",
        id="services-pass-for-operators",
    ),
    pytest.param(
        set_variable("qim-process-config", "QIM_TLS_CA_FILE", "/etc/qim/tls/tls.crt"),
        "QIM_TLS_CA_FILE is not ca.crt",
        id="trusts-itself-alone",
    ),
    pytest.param(
        mount("qim-writer", {"name": "ca", "secret": {"secretName": "qim-services-ca"}}),
        "mounts the key of the CA qim-services-ca",
        id="the-key-of-an-authority",
    ),
]
