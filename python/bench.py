"""Measures this package beside other packages for Python: the same work on the same server, in turns.

    cargo xtask servers redis zookeeper          prints the addresses
    python bench.py --redis redis://... --zookeeper zk://... [--rounds 20]

Two kinds of work: to take a free lock and to release it, again and again; and four threads (or coroutines)
that contend for one lock. A library that is not installed, or whose server is not named, is left out. The
wheel should be a release build: `maturin build --release`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import logging
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from urllib.parse import urlsplit

import lockwell

# How long a library works in each round, in seconds.
SPAN = 0.2
PARTIES = 4
LEASE = 10

Make = Callable[[str], AbstractContextManager[object]]


class Library:
    """A library on a server: how a lock of a name is made, for a block of `with`."""

    def __init__(self, server: str, title: str, make: Make) -> None:
        self.server, self.title, self.make = server, title, make
        self.free: list[float] = []
        self.contended: list[float] = []

    def measure(self) -> None:
        self.free.append(self.cycles())
        self.contended.append(self.contend())

    def cycles(self) -> float:
        """The median time of a cycle, in seconds."""
        name, times, end = f"bench/free/{self.title}", [], time.perf_counter() + SPAN
        while not times or time.perf_counter() < end:
            began = time.perf_counter()
            with self.make(name):
                pass
            times.append(time.perf_counter() - began)
        return statistics.median(times)

    def contend(self) -> float:
        """Acquisitions per second, of all threads."""
        name, counts, end = f"bench/one/{self.title}", [0] * PARTIES, time.perf_counter() + SPAN

        def work(party: int) -> None:
            while not counts[party] or time.perf_counter() < end:
                with self.make(name):
                    counts[party] += 1

        threads = [threading.Thread(target=work, args=(party,)) for party in range(PARTIES)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(counts) / (time.perf_counter() - began)


class AsyncLibrary(Library):
    """This package on asyncio."""

    def __init__(self, server: str, title: str, locks: lockwell.Locks) -> None:
        super().__init__(server, title, locks.lock)
        self.locks = locks

    def cycles(self) -> float:
        async def main() -> float:
            times, end = [], time.perf_counter() + SPAN
            while not times or time.perf_counter() < end:
                began = time.perf_counter()
                async with self.locks.lock("bench/free/asyncio"):
                    pass
                times.append(time.perf_counter() - began)
            return statistics.median(times)

        return asyncio.run(main())

    def contend(self) -> float:
        async def main() -> float:
            counts, began = [0] * PARTIES, time.perf_counter()

            async def work(party: int) -> None:
                while not counts[party] or time.perf_counter() < began + SPAN:
                    async with self.locks.lock("bench/one/asyncio"):
                        counts[party] += 1

            await asyncio.gather(*map(work, range(PARTIES)))
            return sum(counts) / (time.perf_counter() - began)

        return asyncio.run(main())


def has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


@contextlib.contextmanager
def libraries(redis_url: str | None, zookeeper_url: str | None, folder: str) -> Iterator[list[Library]]:
    with contextlib.ExitStack() as stack:
        found: list[Library] = []

        def ours(server: str, url: str) -> None:
            locks = stack.enter_context(lockwell.connect(url, ttl=LEASE))
            found.append(Library(server, "lockwell", locks.lock))
            found.append(AsyncLibrary(server, "lockwell, asyncio", locks))

        ours("memory", "memory://")
        ours("file", f"sqlite://{folder}/locks.db")
        if has("filelock"):
            from filelock import FileLock

            def file_lock(name: str) -> FileLock:
                return FileLock(f"{folder}/{name.replace('/', '-')}", thread_local=False)

            found.append(Library("file", "filelock", file_lock))
        if redis_url is not None:
            ours("Redis", redis_url)
        if redis_url is not None and has("redis"):
            import redis

            client = redis.Redis.from_url(redis_url)
            stack.callback(client.close)
            found.append(Library("Redis", "redis-py", lambda name: client.lock("py/" + name, timeout=LEASE)))
            if has("redis_lock"):
                import redis_lock

                logging.getLogger("redis_lock").setLevel(logging.ERROR)
                make: Make = lambda name: redis_lock.Lock(client, name, expire=LEASE, auto_renewal=True)  # noqa: E731
                found.append(Library("Redis", "python-redis-lock", make))
        if zookeeper_url is not None:
            ours("ZooKeeper", zookeeper_url)
        if zookeeper_url is not None and has("kazoo"):
            from kazoo.client import KazooClient

            zk = KazooClient(hosts=urlsplit(zookeeper_url).netloc)
            zk.start()
            stack.callback(zk.stop)
            found.append(Library("ZooKeeper", "kazoo", lambda name: zk.Lock(f"/kazoo/{name}")))
        yield found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--redis")
    parser.add_argument("--zookeeper")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        libraries(options.redis, options.zookeeper, folder) as found,
    ):
        for number in range(options.rounds):
            # In another order each time, so that a machine that becomes slower affects all alike.
            for place in range(len(found)):
                found[(place + number) % len(found)].measure()
        print("server     library              a free lock   four contend, acquisitions per second")
        for library in found:
            free, contended = statistics.median(library.free), statistics.median(library.contended)
            print(f"{library.server:10} {library.title:20} {free * 1e6:8.0f} us   {contended:10.0f}")


if __name__ == "__main__":
    main()
