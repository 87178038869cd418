"""The events of a client."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

import lockwell
from lockwell.testing import TestServer


def test_the_events_of_a_hold() -> None:
    server = TestServer()
    with server.locks() as locks:
        events = locks.events()
        with locks.permit("a", 2) as lock:
            token = lock.token
        with pytest.raises(lockwell.LostError), locks.lock("b") as lock:
            server.lose("b")
            lock.wait_lost(30)
        seen = [next(events) for _ in range(4)]
    assert [(event.kind, event.name) for event in seen] == [
        ("granted", "a"),
        ("released", "a"),
        ("granted", "b"),
        ("lost", "b"),
    ]
    assert (seen[0].mode, seen[0].permits, seen[0].token, seen[0].missed) == ("permit", 2, token, 0)
    assert (seen[3].loss, seen[3].token, seen[3].mode) == ("taken", lock.token, None)
    # The client is closed.
    assert list(events) == []


def test_events_on_asyncio() -> None:
    async def main() -> None:
        async with await lockwell.aconnect("memory://events") as locks:
            events = locks.events()
            task = asyncio.create_task(events.__anext__())  # type: ignore[arg-type]
            await asyncio.sleep(0)
            thread = threading.Thread(target=lambda: locks.lock("a").acquire().release())
            thread.start()
            # The loop is blocked while the operation ends.
            thread.join()
            time.sleep(0.5)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await anext(events)).kind == "granted"
            assert (await anext(events)).kind == "released"
        assert [event async for event in events] == []

    asyncio.run(main())


def test_a_slow_reader_knows_what_it_has_missed() -> None:
    with lockwell.connect("memory://slow") as locks:
        events = locks.events()
        for _ in range(600):
            locks.lock("a").acquire().release()
        first = next(events)
    assert (first.kind, first.name) == ("missed", None) and first.missed > 0
