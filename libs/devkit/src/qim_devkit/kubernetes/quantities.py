"""Amounts of bytes, as manifests and as Valkey's configuration write them."""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = {
    "": 1,
    "m": 1e-3,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}
_CONFIG_UNITS: Final = {
    "": 1,
    "b": 1,
    "k": 10**3,
    "kb": 2**10,
    "m": 10**6,
    "mb": 2**20,
    "g": 10**9,
    "gb": 2**30,
}


def bytes_of(quantity: str | int) -> float:
    """A quantity of a manifest, such as `512Mi` or `4Gi`; raises ValueError."""
    found = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", str(quantity))
    if found is None or found[2] not in _UNITS:
        raise ValueError(f"{quantity} is no quantity of bytes")
    return float(found[1]) * _UNITS[found[2]]


def config_bytes(amount: str) -> int:
    """An amount of Valkey's configuration, such as `512mb`; raises ValueError."""
    found = re.fullmatch(r"([0-9]+)([a-z]*)", amount.lower())
    if found is None or found[2] not in _CONFIG_UNITS:
        raise ValueError(f"{amount} is no amount of bytes")
    return int(found[1]) * _CONFIG_UNITS[found[2]]
