from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("scripts", "servers")

import lockwell  # noqa: E402
from servers import BACKENDS, Servers  # noqa: E402

# A shell starts what runs in the background with INT ignored, and then Python leaves it so.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    servers = Servers()
    yield servers
    servers.stop()


@pytest.fixture(params=BACKENDS)
def url(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> str:
    """The address of each backend in turn; with the mark `also_on_etcd` also that of etcd."""
    if request.param == "sqlite":
        return f"sqlite://{tmp_path}/locks.db"
    return servers.url(request.param)


@pytest.fixture(params=["sqlite", "redis"])
def some_url(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> str:
    """The address of a file, and of a server: for what takes long, and depends on the backend little."""
    return f"sqlite://{tmp_path}/locks.db" if request.param == "sqlite" else servers.url(request.param)


@pytest.fixture(params=["redis", "postgres", "mariadb"])
def shared_url(request: pytest.FixtureRequest, servers: Servers) -> str:
    """Where a child of a process that has a client may have one."""
    return servers.url(request.param)


@pytest.fixture
def redis_url(servers: Servers) -> str:
    return servers.url("redis")


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A lock of this test alone."""
    return f"python/{request.node.name}"


@pytest.fixture
def locks(url: str) -> Iterator[lockwell.Locks]:
    with lockwell.connect(url) as locks:
        yield locks


@pytest.fixture
def memory() -> Iterator[lockwell.Locks]:
    with lockwell.connect("memory://") as locks:
        yield locks
