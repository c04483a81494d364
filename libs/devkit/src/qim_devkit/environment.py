"""The environment of each service of a suite: where it listens, who it is, and where everything else is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from qim_common.identity import Role
from qim_devkit.paths import SuitePaths
from qim_devkit.pki import DevPki
from qim_devkit.tiered import ARCHIVER

DRAIN_SECONDS: Final = "3"
"""How long a service that stops waits for its calls, and then again for its own work."""

_LISTENERS: Final = {"": "QIM_LISTEN", ".health": "QIM_HEALTH_LISTEN", ".metrics": "QIM_METRICS_LISTEN"}


def service_of(name: str) -> str:
    """The service of which `name` is a replica."""
    return name.partition("-")[0]


def listeners_of(name: str) -> tuple[str, ...]:
    """The names of a service's ports: mTLS (an archiver has none), health, metrics."""
    return tuple(f"{name}{kind}" for kind in _LISTENERS if kind or service_of(name) != ARCHIVER)


def service_environment(
    name: str,
    *,
    pki: DevPki,
    paths: SuitePaths,
    listen: Mapping[str, str],
    services: Mapping[str, str],
) -> dict[str, str]:
    """The whole environment of one service: this process's without any QIM_ variable, and what the suite sets.

    But for the stores, which are the same for everybody.

    Args:
        listen: `host:port` of each of `listeners_of(name)`.
        services: `host:port` of the services that others call, by their names.
    """
    service = service_of(name)
    # An archiver is a part of the writer: certificates have no role of its own.
    role = Role.WRITER if service == ARCHIVER else service
    files = pki.issue(role, f"{service}-0" if name == service else name)
    settings = {
        "QIM_TLS_CERT_FILE": str(files.cert),
        "QIM_TLS_KEY_FILE": str(files.key),
        "QIM_TLS_CA_FILE": str(pki.services_ca),
        "QIM_TRUST_DOMAIN": pki.trust_domain,
        "QIM_BINDINGS_FILE": str(paths.bindings),
        "QIM_TOKEN_KEY_FILE": str(paths.token_key),
        "QIM_LOG_FORMAT": "text",
        "QIM_DRAIN_SECONDS": DRAIN_SECONDS,
    }
    settings |= {_LISTENERS[port.removeprefix(name)]: address for port, address in listen.items()}
    settings |= {f"QIM_{other.upper()}_ADDR": address for other, address in services.items()}
    if service == "admin":
        settings["QIM_OPERATOR_CA_FILE"] = str(pki.operators_ca)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("QIM_")}
    return {**inherited, "PYTHONUNBUFFERED": "1", **settings}
