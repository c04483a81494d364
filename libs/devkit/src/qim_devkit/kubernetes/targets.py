"""What there is to check below deploy/k8s: every overlay, every component on the production overlay, every example."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from qim_devkit.kubernetes.render import Manifests, RenderError, render
from qim_devkit.kubernetes.tools import find_kubectl

BASIS: Final = "production"
"""The overlay that components are checked on: it has everything that a component may change."""


@dataclass(frozen=True, slots=True)
class Target:
    """A directory of an installation, with components on it.

    Attributes:
        directory: of a kustomization.
        components: directories of components that are put on it, in this order.
    """

    directory: Path
    components: tuple[Path, ...] = ()

    @property
    def title(self) -> str:
        """For messages: the directories."""
        return " with ".join(_short(path) for path in (self.directory, *self.components))

    def render(self) -> Manifests:
        """Its objects.

        Raises:
            RenderError: with kustomize's words.
            KubernetesToolMissing: there is no kubectl.
        """
        if not self.components:
            return render(self.directory, kubectl=find_kubectl())
        with tempfile.TemporaryDirectory(prefix="qim-kustomize-") as temporary:
            # kustomize takes relative paths only, and follows links before it does.
            here = Path(temporary).resolve()

            def relative(path: Path) -> str:
                return os.path.relpath(path.resolve(), here)

            content = {
                "apiVersion": "kustomize.config.k8s.io/v1beta1",
                "kind": "Kustomization",
                # Without it a component's objects would not find those of the overlay, which are in its namespace.
                **_namespace(self.directory),
                "resources": [relative(self.directory)],
                "components": [relative(component) for component in self.components],
            }
            (here / "kustomization.yaml").write_text(yaml.safe_dump(content))
            try:
                return render(here, kubectl=find_kubectl())
            except RenderError as error:
                raise RenderError(str(error).replace(str(here), self.title)) from None


def targets_below(root: Path) -> Sequence[Target]:
    """All of a tree that has `overlays`, `components` and `examples`, as deploy/k8s has; empty where it has none."""
    overlays = _kustomizations(root / "overlays")
    basis = root / "overlays" / BASIS
    own = _own_components(basis) if basis in overlays else frozenset[Path]()
    components = _kustomizations(root / "components")
    on_basis = [Target(basis, (component,)) for component in components if component.resolve() not in own]
    examples = _kustomizations(root / "examples")
    return [*map(Target, overlays), *on_basis, *map(Target, examples)]


def _own_components(directory: Path) -> frozenset[Path]:
    """Components that a kustomization has itself; twice they would be refused."""
    content = yaml.safe_load((directory / "kustomization.yaml").read_text())
    named = content.get("components", ()) if isinstance(content, dict) else ()
    return frozenset((directory / component).resolve() for component in named)


def _namespace(directory: Path) -> dict[str, str]:
    """The setting `namespace` of a kustomization, if it has one."""
    content = yaml.safe_load((directory / "kustomization.yaml").read_text())
    return {"namespace": content["namespace"]} if isinstance(content, dict) and "namespace" in content else {}


def _kustomizations(directory: Path) -> list[Path]:
    return sorted(path.parent for path in directory.glob("*/kustomization.yaml"))


def _short(path: Path) -> str:
    """Relative to the working directory where it is below it."""
    full, here = path.resolve(), Path.cwd()
    return str(full.relative_to(here) if full.is_relative_to(here) else full)
