"""What the services of a running suite count."""

from __future__ import annotations

import asyncio
import urllib.request

from qim_devkit.suite import Suite


async def counted(suite: Suite, name: str, *services: str) -> float:
    """A metric, all its labels and all these services together; 0 where it is not told yet."""
    texts = await asyncio.gather(*(asyncio.to_thread(_read, suite.metrics_address(service)) for service in services))
    lines = [line for text in texts for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def _read(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        return str(answer.read().decode())
