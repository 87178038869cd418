"""Measures this package beside other packages for Python: the same work on the same server, in turns.

    python/bench [--rounds 20]          builds an optimised wheel, installs the others, and calls this program

Two kinds of work: to take a free lock and to release it, again and again; and four threads (or coroutines)
that contend for one lock. Servers that are not named are started; what is not installed is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.metadata
import importlib.util
import logging
import platform
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from urllib.parse import urlsplit

import lockwell

sys.path.insert(0, str(Path(__file__).resolve().parent / "tests"))

from servers import PROGRAMS, Servers

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
def libraries(
    redis_url: str | None, zookeeper_url: str | None, etcd_url: str | None, folder: str
) -> Iterator[list[Library]]:
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
            if has("sherlock"):
                import sherlock

                sherlock.configure(backend=sherlock.backends.REDIS, client=client, expire=LEASE, timeout=60)
                found.append(Library("Redis", "sherlock", lambda name: sherlock.Lock("sherlock/" + name)))
        if zookeeper_url is not None:
            ours("ZooKeeper", zookeeper_url)
        if zookeeper_url is not None and has("kazoo"):
            from kazoo.client import KazooClient

            zk = KazooClient(hosts=urlsplit(zookeeper_url).netloc)
            zk.start()
            stack.callback(zk.stop)
            found.append(Library("ZooKeeper", "kazoo", lambda name: zk.Lock(f"/kazoo/{name}")))
        if etcd_url is not None:
            ours("etcd", etcd_url)
        yield found


def spread(values: list[float], scale: float) -> str:
    """The median, and the quartiles around it."""
    # Of one value there are no quartiles.
    several = values if len(values) > 1 else values * 2
    low, middle, high = (value * scale for value in statistics.quantiles(several, n=4))
    return f"{middle:8.0f} ({low:.0f} to {high:.0f})"


def packages() -> str:
    names = ["lockwell", "filelock", "redis", "python-redis-lock", "sherlock", "kazoo"]
    found = {one.name: one.version for one in importlib.metadata.distributions()}
    return ", ".join(f"{name} {found[name]}" for name in names if name in found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--redis", help="the address of a server, instead of one that is started")
    parser.add_argument("--zookeeper", help="the same")
    parser.add_argument("--etcd", help="the same")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        servers = Servers()
        stack.callback(servers.stop)

        def address(given: str | None, name: str) -> str | None:
            is_there = given is None and shutil.which(PROGRAMS[name]) is not None
            return servers.url(name) if is_there else given

        folder = stack.enter_context(tempfile.TemporaryDirectory())
        redis_url, zookeeper_url = address(options.redis, "redis"), address(options.zookeeper, "zookeeper")
        etcd_url = address(options.etcd, "etcd")
        found = stack.enter_context(libraries(redis_url, zookeeper_url, etcd_url, folder))
        for number in range(options.rounds):
            # In another order each time, so that a machine that becomes slower affects all alike.
            for place in range(len(found)):
                found[(place + number) % len(found)].measure()
        print(f"Python {platform.python_version()}; {packages()}; {options.rounds} rounds of {SPAN} s")
        print("median (quartiles)              a free lock, us              four contend, grants per second")
        for library in found:
            free, contended = spread(library.free, 1e6), spread(library.contended, 1)
            print(f"{library.server:10} {library.title:20} {free:28} {contended}")


if __name__ == "__main__":
    main()
