"""What a suite needs before its processes start: identities, bindings, keys, and the configuration of those beside it.

The names in the certificates: services are `<service>-0`, the push process is `push-0`; the development gateway,
operator and back end are `dev-gateway`, `dev-operator` and `dev-backend`, bound to the suite's tenants.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from qim_client.config import DEVELOPMENT_NAMES
from qim_common.identity import Role
from qim_devkit.paths import SuitePaths
from qim_devkit.pki import CertFiles, DevPki
from qim_devkit.tiered import Backend

GATEWAY: Final = "dev-gateway"
OPERATOR: Final = "dev-operator"
BACKEND: Final = "dev-backend"

PUSH_PORTS: Final = ("push.health", "push.metrics")
"""The ports that are kept for a push process beside the suite."""

_PUSH_TAKES_OVER: Final = frozenset(
    {
        "QIM_TLS_CA_FILE",
        "QIM_REDIS_ADDR",
        "QIM_MESSAGE_STORE_ADDRS",
        "QIM_SESSION_REDIS_ADDRS",
        "QIM_REDIS_USERNAME",
        "QIM_REDIS_PASSWORD_FILE",
        "QIM_REDIS_TLS_CA_FILE",
        "QIM_COMMIT_BUCKETS",
        "QIM_INSTALLATION_ID",
        "QIM_WRITER_ADDR",
        "QIM_LOG_FORMAT",
        "QIM_BACKEND",
        "QIM_ACK_LEVEL",
        "QIM_CASSANDRA_CONTACT_POINTS",
        "QIM_CASSANDRA_LOCAL_DC",
        "QIM_CASSANDRA_KEYSPACE",
    }
)
"""What a push process and the session service have in common."""


@dataclass(slots=True)
class SuiteState:
    """What the next start takes over: the installation's id, which its data carries, the ports and the backend."""

    installation_id: str = field(default_factory=lambda: f"dev-{uuid.uuid4()}")
    ports: dict[str, int] = field(default_factory=dict)
    backend: str = ""
    """Empty before the first start."""

    def require(self, root: Path, backend: str, valkeys: Sequence[str]) -> None:
        """The directory `root` takes a suite of this shape, from now on no other. Raises ValueError if it has one."""
        if self.backend not in ("", backend):
            raise ValueError(
                f"{root}: its data was made with the backend {self.backend}, not {backend}; start it with that, "
                f"use another directory, or remove {root} with all its data"
            )
        known = {name for name in self.ports if name.startswith("valkey-")}
        if known and known != set(valkeys):
            raise ValueError(
                f"{root}: its data lies on {len(known)} Valkey instances, not on {len(valkeys)}; "
                f"start it with {len(known)}, or remove {root} with all its data"
            )
        self.backend = backend


def load_state(paths: SuitePaths) -> SuiteState:
    """The remembered state, or a new one where there is none. Raises ValueError for a damaged file."""
    try:
        document: Any = json.loads(paths.state.read_text())
        ports = {str(name): int(port) for name, port in document["ports"].items()}
        # A file from before there were others names no backend.
        return SuiteState(str(document["installation_id"]), ports, str(document.get("backend", Backend.REDIS)))
    except FileNotFoundError:
        return SuiteState()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{paths.state}: damaged ({error}); it names the installation whose data lies beside it: "
            f"mend it, or remove {paths.root} with all its data"
        ) from None


def save_state(paths: SuitePaths, state: SuiteState) -> None:
    """Remember the state. A crash leaves the old file or the new one."""
    temporary = paths.state.with_suffix(".new")
    temporary.write_text(json.dumps(asdict(state), indent=2) + "\n")
    temporary.replace(paths.state)


def write_bindings(paths: SuitePaths, tenants: Sequence[int]) -> None:
    """Binds the development identities to `tenants`. A file that is there stays: developers may have edited it."""
    if paths.bindings.exists():
        return
    document = {
        "gateways": {GATEWAY: {"tenants": list(tenants)}},
        "operators": {OPERATOR: {"tenants": list(tenants), "roles": ["admin"]}},
        "backends": {BACKEND: {"tenants": list(tenants)}},
    }
    paths.bindings.write_text(yaml.safe_dump(document, sort_keys=False))


def write_token_key(paths: SuitePaths) -> None:
    """A random key of page and resume tokens, once: tokens stay valid across restarts."""
    _write_key(paths.token_key)


def write_push_environment(
    paths: SuitePaths, pki: DevPki, session: Mapping[str, str], ports: Mapping[str, int]
) -> None:
    """The environment of a push process beside the suite, as shell lines; the webhook's URL is left to its user.

    Args:
        session: the environment of the session service, which has the same stores.
        ports: of health and metrics, by the names of PUSH_PORTS.
    """
    _write_key(paths.webhook_secret)
    files = pki.issue(Role.SESSION, "push-0")
    health, metrics = (f"127.0.0.1:{ports[name]}" for name in PUSH_PORTS)
    values = {
        **{name: value for name, value in session.items() if name in _PUSH_TAKES_OVER},
        "QIM_HEALTH_LISTEN": health,
        "QIM_METRICS_LISTEN": metrics,
        "QIM_TLS_CERT_FILE": str(files.cert),
        "QIM_TLS_KEY_FILE": str(files.key),
        "QIM_WEBHOOK_SECRET_FILE": str(paths.webhook_secret),
    }
    _write_shell(paths.push_environment, 'docs/push.md, "Beside `make up`"', values)


def write_qimctl_environment(paths: SuitePaths, stores: Mapping[str, str]) -> None:
    """The environment of `qimctl recover` and `qimctl schema`, as shell lines.

    Args:
        stores: the variables that name the suite's stores.
    """
    _write_shell(paths.qimctl_environment, 'docs/recovery.md, "Try it on one machine"', stores)


def _write_shell(path: Path, page: str, values: Mapping[str, str]) -> None:
    lines = [f"# Written by `make up`, for a shell: {page}."]
    lines += [f"{name}={shlex.quote(value)}" for name, value in sorted(values.items())]
    temporary = path.with_suffix(".new")
    temporary.unlink(missing_ok=True)
    _write_private(temporary, "\n".join(lines) + "\n")
    temporary.replace(path)


def _write_key(path: Path) -> None:
    if not path.exists():
        _write_private(path, secrets.token_hex(32) + "\n")


def _write_private(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)


def write_client_config(paths: SuitePaths, pki: DevPki, addresses: Mapping[str, str], tenant: int) -> None:
    """What `qim` and `qimctl` need; a section only where its services run. `addresses`: service to `host:port`."""
    lines = ["# Written by `make up`: where the suite listens, and who `qim` and `qimctl` are."]
    if "writer" in addresses and "session" in addresses:
        values: dict[str, str | int] = {
            "writer": addresses["writer"],
            "session": addresses["session"],
            "tenant": tenant,
        }
        lines += _section(paths, "gateway", values, pki.issue(Role.GATEWAY, GATEWAY))
    if "admin" in addresses:
        place = addresses["admin"]
        operator: dict[str, str | int] = {"admin": place, "tenant": tenant, "names": DEVELOPMENT_NAMES}
        lines += _section(paths, "operator", operator, pki.issue(Role.OPERATOR, OPERATOR))
    paths.client_config.write_text("\n".join(lines) + "\n")


def _section(paths: SuitePaths, name: str, values: Mapping[str, object], files: CertFiles) -> list[str]:
    tls = {part: str(getattr(files, part).relative_to(paths.root)) for part in ("cert", "key", "ca")}
    # JSON's texts and numbers are TOML's too.
    return ["", f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in {**values, **tls}.items())]
