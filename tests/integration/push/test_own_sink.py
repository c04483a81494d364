"""The sink that docs/push.md tells how to write, exactly as it stands there."""

from __future__ import annotations

import hmac
import re
import time
from pathlib import Path
from typing import Any

import pytest
from tests.integration.push.conftest import Person, Push, shown
from tests.support.writers import until

from qim_devkit.processes import ServiceProcess
from qim_session.backends.webhook_wire import sign

PAGE = Path(__file__).parents[3] / "docs" / "push.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.server
async def test_the_sink_of_the_documentation_is_told(push: Push, person: Person, tmp_path: Path) -> None:
    (example,) = [block for block in BLOCKS if "class Printer" in block]
    (tmp_path / "own_sink.py").write_text(example)
    prepared = push.process()
    environment = push.environments[prepared] | {"PYTHONPATH": str(tmp_path)}
    process = ServiceProcess("own sink", "own_sink", environment, tmp_path / "own.log", push.health[prepared])
    ana, ben = person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    sent = await ana.send_to(group, b"hello")
    await process.start()
    try:
        line = f"told 1/{shown(group)}/0/{sent.seq}/{shown(ben.actor.user)}, 1 unread"
        await until(lambda: line in process.log.read_text())
        assert await process.stop(), process.log_tail()
    finally:
        await process.kill()


def test_the_check_of_the_documentation_takes_what_is_signed() -> None:
    (check,) = [block for block in BLOCKS if "def verified" in block]
    names: dict[str, Any] = {"hmac": hmac, "time": time}
    exec(compile(check, str(PAGE), "exec"), names)  # noqa: S102  the page's own lines
    verified, secret, now = names["verified"], b"s" * 32, int(time.time())
    assert verified(sign([b"o" * 32, secret], now, b"body"), b"body", secret)
    assert not verified(sign([secret], now, b"body"), b"another", secret)
    assert not verified(sign([secret], now - 1000, b"body"), b"body", secret)
