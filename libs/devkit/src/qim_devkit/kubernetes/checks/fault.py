"""One thing that is wrong in manifests."""

from __future__ import annotations

from dataclasses import dataclass

from qim_devkit.kubernetes.render import Document


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """Where it is (kind and name, perhaps a part), what is wrong, and how to mend it."""

    where: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}; {self.remedy}"


def place(document: Document) -> str:
    """Kind and name, as `Fault.where` has it."""
    return f"{document['kind']} {document['metadata']['name']}"
