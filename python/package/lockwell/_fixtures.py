"""Fixtures for pytest, which finds them by itself where this package is installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ._connect import connect
from ._locks import Locks
from .testing import TestServer


@pytest.fixture
def lockwell_locks() -> Iterator[Locks]:
    """A client of a lock server in memory, of this test alone."""
    with connect("memory://") as locks:
        yield locks


@pytest.fixture
def lockwell_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of an SQLite file of this test alone, for programs that connect by themselves, in several
    processes too. During the test the variable ``LOCKWELL_URL`` has it.
    """
    url = f"sqlite://{tmp_path}/lockwell.db"
    monkeypatch.setenv("LOCKWELL_URL", url)
    return url


@pytest.fixture
def lockwell_server() -> TestServer:
    """A lock server in memory, whose faults and clock the test controls."""
    return TestServer()
