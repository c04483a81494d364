"""Environment: what the manifests set and what the programs read are the same, and its values are taken."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from qim_common.cassandra import CassandraSettings
from qim_common.config import PREFIX, StoreSettings
from qim_common.redis.address import AddressError, RedisAddress
from qim_devkit.kubernetes.checks.fault import Fault, place
from qim_devkit.kubernetes.checks.settings import path_variables
from qim_devkit.kubernetes.checks.suite import Process, Suite
from qim_devkit.kubernetes.pods import containers_of, workloads

LEFT_AT_DEFAULT: Final = frozenset(
    {
        # Telemetry that needs a receiver.
        "QIM_OTLP_ENDPOINT",
        # Limits and rhythms whose defaults were measured (docs/performance.md) and suit any size.
        "QIM_STREAM_MAX_AGE_SECONDS",
        "QIM_MAX_CONCURRENT_CALLS",
        "QIM_RELOAD_INTERVAL_SECONDS",
        "QIM_DISPATCH_RETENTION_HOURS",
        "QIM_RETENTION_INTERVAL_SECONDS",
        "QIM_CASSANDRA_TIMEOUT_SECONDS",
        "QIM_CASSANDRA_MAX_IN_FLIGHT",
        "QIM_SUBSCRIBE_QUEUE_EVENTS",
        "QIM_SUBSCRIBE_QUEUE_BYTES",
        "QIM_SUBSCRIBE_ATTACHMENTS_MAX",
        "QIM_SUBSCRIBE_TOKEN_SECONDS",
        "QIM_WEBHOOK_TIMEOUT_SECONDS",
        "QIM_WEBHOOK_CONNECTIONS",
        # What the product does for its users: theirs to change.
        "QIM_MESSAGE_MAX_BYTES",
        "QIM_GROUP_MEMBER_LIMIT",
        "QIM_GROUP_MEMBER_LIMIT_MAX",
        "QIM_MEMBERSHIP_EVENT_BROADCAST_MAX_MEMBERS",
        "QIM_PROJECTION_FANOUT_MAX_MEMBERS",
        "QIM_MAILBOX_MAX_ENTRIES",
        "QIM_MAILBOX_MAX_AGE_DAYS",
        "QIM_PUSH_MAX_AGE_SECONDS",
        "QIM_PUSH_BIG_GROUPS",
        "QIM_PUSH_UNREAD_MAX_RECIPIENTS",
        "QIM_PUSH_BODY_MAX_BYTES",
        "QIM_PUSH_BATCH_MAX",
        # Other stores than those of these manifests: ScyllaDB, replicas, users and TLS.
        "QIM_ALLOW_COMPARISON_BACKEND",
        "QIM_REPLICAS",
        "QIM_PROMOTION",
        "QIM_REDIS_USERNAME",
        "QIM_REDIS_TLS_CA_FILE",
        "QIM_CASSANDRA_PROTOCOL_VERSION",
        "QIM_CASSANDRA_TLS_CA_FILE",
        "QIM_CASSANDRA_TLS_CERT_FILE",
        "QIM_CASSANDRA_TLS_KEY_FILE",
        "QIM_WEBHOOK_CA_FILE",
        # 20 ms by itself where acknowledgements wait for the archive.
        "QIM_ARCHIVE_LINGER_MS",
        # An operator's own: the schema needs no service.
        "QIM_CONFIG",
    }
)
"""Variables that no manifest has to set. One that is neither set nor here is a fault: who adds a setting decides."""

NOTICED_ELSEWHERE: Final = {
    "QIM_MESSAGE_STORE_ADDRS": "addresses: an instance that nobody names",
    "QIM_SESSION_REDIS_ADDRS": "addresses: an instance that nobody names",
    "QIM_REDIS_PASSWORD_FILE": "environment: a mounted file that no variable names",
    "QIM_CASSANDRA_USERNAME": "the settings: without its password file",
    "QIM_CASSANDRA_PASSWORD_FILE": "environment: a mounted file that no variable names",
}
"""Variables that some installations do without; what notices one that is forgotten."""

TIERED_ONLY: Final = frozenset({"QIM_OUTBOX_MAX_MESSAGES"})
"""Decided by the manifests only where there is an archive."""

_EQUAL_FILES: Final = ("QIM_BINDINGS_FILE", "QIM_TOKEN_KEY_FILE")


def faults(suite: Suite) -> list[Fault]:
    """Variables that nobody reads, are missing, have values that are not taken, differ or are secret and must not."""
    found: list[Fault] = []
    for process in suite.processes:
        found += _names(process)
        found += _values(process)
        found += _files(process)
    return [*found, *_equal(suite), *_secrets(suite), *_unused(suite)]


def _names(process: Process) -> Iterator[Fault]:
    there = set(process.container.environment)
    for name in sorted(there - process.variables):
        yield Fault(process.where, f"{name} is set, and {process.program.name} does not read it", "remove or rename it")
    free = LEFT_AT_DEFAULT | NOTICED_ELSEWHERE.keys()
    if process.value("backend") != "tiered":
        free |= TIERED_ONLY
    for name in sorted(process.variables - there - free):
        yield Fault(
            process.where,
            f"{name} is not set, and {process.program.name} reads it",
            "set it, or write into qim_devkit.kubernetes.checks.environment why it is left at its default",
        )


def _values(process: Process) -> Iterator[Fault]:
    for one in process.read.values():
        for line in one.lines:
            yield Fault(process.where, line, "docs/configuration.md says what it takes")


def _files(process: Process) -> Iterator[Fault]:
    """Each mounted file is one that a variable names; that each named file is mounted, the settings have found."""
    named = {
        process.container.environment.get(variable) for cls in process.read for variable in path_variables(cls)
    } - {None}
    for path, source in sorted(process.container.sources.items()):
        if path not in named:
            yield Fault(
                process.where,
                f"{path} ({source.kind} {source.name}, {source.key}) is mounted, and no variable names it",
                "name it, or mount only what is read (`items`)",
            )


def _equal(suite: Suite) -> Iterator[Fault]:
    fields = [name for cls in (StoreSettings, CassandraSettings) for name in cls.model_fields]
    for name in (*fields, "trust_domain"):
        by_value: dict[str, list[str]] = {}
        for process in suite.with_field(name):
            if process.value("installation_id") is None and process.has("installation_id"):
                continue  # its settings are at fault themselves
            by_value.setdefault(_shown(process, name), []).append(process.name)
        yield from _differing(f"{PREFIX}{name.upper()}", by_value)
    for variable in _EQUAL_FILES:
        by_source: dict[str, list[str]] = {}
        for process in suite.processes:
            if variable in process.variables:
                by_source.setdefault(_source(process, variable), []).append(process.name)
        yield from _differing(variable, by_source)


def _differing(variable: str, by_value: dict[str, list[str]]) -> Iterator[Fault]:
    if len(by_value) < 2:
        return
    told = "; ".join(f"{value or 'nothing'} for {', '.join(names)}" for value, names in sorted(by_value.items()))
    few = min(by_value.values(), key=len)
    yield Fault(f"Deployment {few[0]}", f"{variable} differs: {told}", "all processes of an installation have the same")


def _shown(process: Process, name: str) -> str:
    """The value; of a file, where it is from."""
    variable = f"{PREFIX}{name.upper()}"
    if any(variable in path_variables(cls) for cls in process.read):
        return _source(process, variable)
    return str(process.value(name))


def _source(process: Process, variable: str) -> str:
    path = process.container.environment.get(variable, "")
    source = process.container.sources.get(path)
    return path if source is None else f"{source.kind} {source.name}, {source.key}"


def _secrets(suite: Suite) -> Iterator[Fault]:
    remedy = "mount the secret and name its file"
    for workload in workloads(suite.manifests):
        for raw in containers_of(workload):
            where = f"{place(workload)}, container {raw['name']}"
            if any("secretRef" in source for source in raw.get("envFrom", ())):
                yield Fault(where, "takes its environment from a Secret", remedy)
            for variable in raw.get("env", ()):
                if "secretKeyRef" in variable.get("valueFrom", {}):
                    yield Fault(where, f"{variable['name']} holds a secret", remedy)
                if not variable["name"].startswith(PREFIX):
                    yield Fault(where, f"{variable['name']} is no variable of qim", "say it in the image, or in a file")
    for process in suite.processes:
        for name in ("QIM_REDIS_ADDR", "QIM_MESSAGE_STORE_ADDRS", "QIM_SESSION_REDIS_ADDRS"):
            for text in process.container.environment.get(name, "").split(","):
                if _has_password(text):
                    yield Fault(process.where, f"{name} holds a password", "set QIM_REDIS_PASSWORD_FILE instead")
    for config in suite.manifests.of("ConfigMap"):
        for key, text in (config.get("data") or {}).items():
            if any(line.split()[:1] == ["requirepass"] for line in str(text).splitlines()):
                yield Fault(place(config), f"{key} holds a password", "include a file of a Secret")


def _has_password(text: str) -> bool:
    try:
        return bool(text.strip()) and bool(RedisAddress.parse(text).password)
    except AddressError:
        return "@" in text


def _unused(suite: Suite) -> Iterator[Fault]:
    """ConfigMaps with variables that no container takes."""
    taken = {
        source[entry]["name"]
        for workload in workloads(suite.manifests)
        for raw in containers_of(workload)
        for source in raw.get("envFrom", ())
        for entry in ("configMapRef",)
        if entry in source
    }
    for config in suite.manifests.of("ConfigMap"):
        variables = [key for key in config.get("data") or {} if key.startswith(PREFIX)]
        if variables and config["metadata"]["name"] not in taken:
            yield Fault(place(config), f"nobody takes {', '.join(sorted(variables))}", "name it in an envFrom")
