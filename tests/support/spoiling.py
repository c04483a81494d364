"""Ways to spoil a draft of the manifests, for tests that show that it is noticed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeAlias

from tests.support.manifests import Draft

from qim_devkit.kubernetes.render import Document

Story: TypeAlias = Callable[[Draft], Any]
SERVICES = ("qim-writer", "qim-session", "qim-admin", "qim-archiver", "qim-push-webhook")
STORES = ("qim-valkey", "qim-session-valkey")


def config(draft: Draft, name: str) -> dict[str, str]:
    found: dict[str, str] = draft.get("ConfigMap", name)["data"]
    return found


def spec(draft: Draft, kind: str, name: str) -> Document:
    found: Document = draft.get(kind, name)["spec"]
    return found


def set_variable(name: str, variable: str, value: str) -> Story:
    return lambda draft: config(draft, name).update({variable: value})


def edit_line(name: str, file: str, old: str, new: str) -> Story:
    def story(draft: Draft) -> None:
        data = config(draft, name)
        assert old in data[file]
        data[file] = data[file].replace(old, new)

    return story


def set_in(kind: str, name: str, path: str, value: object) -> Story:
    """Set what a dotted path of the spec leads to; None removes it."""

    def story(draft: Draft) -> None:
        *way, last = path.split(".")
        found: Any = spec(draft, kind, name)
        for part in way:
            found = found[int(part)] if part.isdigit() else found[part]
        if value is None:
            del found[last]
        elif isinstance(found, list):
            found[int(last)] = copy.deepcopy(value)
        else:
            found[last] = copy.deepcopy(value)

    return story


def in_container(name: str, path: str, value: object, kind: str = "Deployment") -> Story:
    return set_in(kind, name, f"template.spec.containers.0.{path}", value)


def add_rule(name: str, direction: str, rule: Document) -> Story:
    return lambda draft: spec(draft, "NetworkPolicy", name).setdefault(direction, []).append(copy.deepcopy(rule))


def add_port(name: str, direction: str, port: Document) -> Story:
    return lambda draft: spec(draft, "NetworkPolicy", name)[direction][0]["ports"].append(copy.deepcopy(port))


def add_peer(name: str, direction: str, peer: Document) -> Story:
    side = "from" if direction == "ingress" else "to"
    return lambda draft: spec(draft, "NetworkPolicy", name)[direction][0][side].append(copy.deepcopy(peer))


def without_rule(name: str, direction: str, number: int) -> Story:
    return lambda draft: spec(draft, "NetworkPolicy", name)[direction].pop(number)


def remove(kind: str, name: str) -> Story:
    return lambda draft: draft.remove(kind, name)


def mount(name: str, volume: Document, kind: str = "Deployment") -> Story:
    def story(draft: Draft) -> None:
        draft.pod(name, kind).setdefault("volumes", []).append(copy.deepcopy(volume))
        mounts = draft.container(name, kind)["volumeMounts"]
        mounts.append({"name": volume["name"], "mountPath": f"/mnt/{volume['name']}"})

    return story


def secret_of(name: str, volume: str, secret: str) -> Story:
    def story(draft: Draft) -> None:
        (found,) = (one for one in draft.pod(name)["volumes"] if one["name"] == volume)
        found["secret"]["secretName"] = secret

    return story


def extra_variable(name: str, variable: Document) -> Story:
    return lambda draft: draft.container(name).setdefault("env", []).append(copy.deepcopy(variable))


def component(name: str) -> Document:
    return {"podSelector": {"matchLabels": {"app.kubernetes.io/component": name}}}


def relabel(name: str, label: str, value: str, kind: str = "Deployment") -> Story:
    return lambda draft: spec(draft, kind, name)["template"]["metadata"]["labels"].update({label: value})
