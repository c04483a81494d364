"""The sink that docs/push.md tells how to write, and the lines that start a webhook, exactly as they stand there."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import re
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.integration.push.conftest import Person, Push, shown
from tests.support.webhook_receiver import WebhookReceiver
from tests.support.writers import until

from qim_devkit.processes import ServiceProcess
from qim_devkit.suite import Suite
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


@pytest.mark.server
async def test_a_webhook_beside_make_up_starts_with_the_lines_of_the_documentation(
    suite: Suite, person: Person, tmp_path: Path
) -> None:
    (lines,) = re.findall(r"```\n(set -a.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / ".qim").symlink_to(suite.paths.root)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    ana, ben = person(), person()
    group = (await ana.create_group([ben.actor.user])).group
    await ana.send_to(group, b"hello")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("QIM_")}
    async with WebhookReceiver(bytes.fromhex(suite.paths.webhook_secret.read_text())) as receiver:
        assert "http://127.0.0.1:8080/hook" in lines
        shell = lines.replace("http://127.0.0.1:8080/hook", shlex.quote(receiver.url))
        process = await asyncio.create_subprocess_exec(
            "sh", "-c", shell, cwd=tmp_path, env=environment, start_new_session=True
        )
        try:
            await receiver.until(lambda: bool(receiver.taken(shown(group))))
        finally:
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself, which the condition has told
                os.killpg(process.pid, signal.SIGTERM)
            await process.wait()


def test_the_check_of_the_documentation_takes_what_is_signed() -> None:
    (check,) = [block for block in BLOCKS if "def verified" in block]
    names: dict[str, Any] = {"hmac": hmac, "time": time}
    exec(compile(check, str(PAGE), "exec"), names)  # noqa: S102  the page's own lines
    verified, secret, now = names["verified"], b"s" * 32, int(time.time())
    assert verified(sign([b"o" * 32, secret], now, b"body"), b"body", secret)
    assert not verified(sign([secret], now, b"body"), b"another", secret)
    assert not verified(sign([secret], now - 1000, b"body"), b"body", secret)
