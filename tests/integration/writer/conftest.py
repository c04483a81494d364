"""One shared writer for all tests here: each test leaves it serving, and nothing in its log but named refusals."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.support.writers import ANA, BEN, CARA, Writers

from qim_common.ids import ConversationId


@pytest.fixture(autouse=True)
async def the_writer_serves_on(writers: Writers) -> AsyncIterator[None]:
    """After whatever a test did to it, the same process commits a message, and it met no exception without a name."""
    process = writers.suite.pid("writer")
    log = writers.suite.log("writer")
    begin = log.stat().st_size
    yield
    ana = writers.user(ANA)
    created = await ana.create_group()
    assert (await ana.send_to(created.group, b"still here")).seq == 1
    assert writers.suite.pid("writer") == process
    with log.open("rb") as written:
        written.seek(begin)
        assert b"Traceback" not in written.read()


@pytest.fixture
async def group(writers: Writers) -> ConversationId:
    """Ana's group with Ben and Cara, in which Ben has written the seq 1."""
    created = await writers.user(ANA).create_group([BEN, CARA])
    await writers.user(BEN).send_to(created.group, b"hello")
    return created.group
