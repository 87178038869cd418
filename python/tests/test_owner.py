"""Owners, and what several locks tell of their losses."""

from __future__ import annotations

import asyncio
import threading

import pytest

import lockwell
from lockwell.testing import TestServer
from servers import also_on_etcd


@also_on_etcd
def test_an_owner_takes_its_lock_again(url: str, name: str) -> None:
    with lockwell.connect(url) as locks:
        owner = locks.owner()
        with owner.lock(name) as outer:
            with owner.lock(name) as inner:
                assert inner.token == outer.token
                assert locks.lock(name).try_now() is None and locks.owner().lock(name).try_now() is None
            assert (inner.is_held, inner.state) == (False, "released")
            with pytest.raises(lockwell.NotHeldError):
                inner.check()
            with pytest.raises(lockwell.NotHeldError):
                inner.release()
            outer.check()
            assert locks.inspect(name).is_held
            again = owner.lock(name).try_now()
            assert again is not None
        again.check()
        again.release()
        assert not locks.inspect(name).is_held

        async def main() -> None:
            async with owner.read(name) as outer:
                async with owner.read(name) as inner:
                    assert inner.token == outer.token
                with pytest.raises(lockwell.WouldDeadlockError):
                    await owner.write(name)
                outer.check()
            assert not (await locks.ainspect(name)).is_held

        asyncio.run(main())


def test_the_loss_of_an_owners_lock() -> None:
    server = TestServer()
    locks = server.locks()
    owner = locks.owner()
    with pytest.raises(lockwell.LostError), owner.lock("a"):
        # The inner one is not the last one: the server is not asked, but the loss is known.
        with pytest.raises(lockwell.LostError), owner.lock("a") as inner:
            server.lose("a")
            assert inner.wait_lost(30) == "taken"
        with pytest.raises(lockwell.LostError):
            owner.lock("a").acquire()
    with owner.lock("a"):
        pass
    with pytest.raises(lockwell.UnsupportedError, match="owner"), owner.write("a") as lock:
        lock.downgrade()
    assert not locks.inspect("a").is_held
    with owner.permit("b", 2), owner.permit("b", 2):
        assert len(locks.inspect("b").holders) == 1
    lock = owner.lock("a").acquire()
    with pytest.warns(ResourceWarning):
        del lock
    locks.lock("a", wait=None).acquire().release()


def test_the_first_loss_of_several_locks() -> None:
    server = TestServer()
    locks = server.locks()
    calls: list[tuple[str, str]] = []
    called = threading.Event()

    def note(name: str, reason: str) -> None:
        calls.append((name, reason))
        called.set()

    with pytest.raises(lockwell.LostError), locks.lock_all(["a", "b"]) as both:
        both.on_lost(note)
        with pytest.raises(TimeoutError):
            both.wait_lost(0.01)
        server.lose("b")
        assert both.wait_lost(30) == ("b", "taken")
        assert called.wait(30) and calls == [("b", "taken")]

    async def main() -> None:
        async with locks.lock_all(["a", "b"]) as both:
            waits = asyncio.create_task(both.lost())
            await both["a"].arelease()
            await asyncio.sleep(0.05)
            assert not waits.done()
        assert await waits is None

    asyncio.run(main())
