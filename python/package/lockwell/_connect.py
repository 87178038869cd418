"""Connecting."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from . import _log, _process
from ._aio import finished
from ._locks import Locks
from ._native import Client
from ._times import Seconds, seconds
from ._wait import wait as _wait


def _settings(
    url: str | None,
    toml: str | os.PathLike[str] | None,
    ttl: Seconds | None,
    wait: Seconds | None,
    label: str | None,
    server_order: bool,
    hand_off: str | None,
    password_file: str | os.PathLike[str] | None,
    require: Iterable[str],
) -> dict[str, Any]:
    _log.refresh()
    _process.expect_end()
    if url is not None and toml is not None:
        raise TypeError("the address is in url or in toml, not in both")
    if toml is not None and not isinstance(toml, str):
        toml = Path(toml).read_text(encoding="utf-8")
    return {
        "url": url,
        "toml": toml,
        "ttl": seconds(ttl),
        "wait": seconds(wait),
        "label": label,
        "server_order": server_order,
        "hand_off": hand_off,
        "password_file": None if password_file is None else os.fspath(password_file),
        "require": list(require),
    }


def connect(
    url: str | None = None,
    *,
    toml: str | os.PathLike[str] | None = None,
    ttl: Seconds | None = None,
    wait: Seconds | None = None,
    label: str | None = None,
    server_order: bool = False,
    hand_off: str | None = None,
    password_file: str | os.PathLike[str] | None = None,
    require: Iterable[str] = (),
    lazy: bool = False,
) -> Locks:
    """Connects to the lock server at this address, and checks it.

    Without ``url`` the configuration is ``toml``: its text as ``str``, or the path of its file as
    ``pathlib.Path``. Without both, the address is that of the environment variable ``LOCKWELL_URL``. ``ttl``,
    ``wait`` and ``label`` are the defaults of requests. ``require`` names what the application demands of the
    backend, such as ``"fencing"``.

    ``server_order``: requests of all processes are served in the order of their arrival. Otherwise processes
    are served in turn, and threads and tasks of a process pass a lock on for 2 ms, or as ``hand_off`` says,
    such as ``"1000/20ms"``.

    ``password_file`` is a file whose only line is the password. It is read for each connection, so the
    password may change.

    ``lazy``: the client connects with its first request, so the server may be away when the program starts.

    Connect in each process, after a fork.
    """
    settings = _settings(url, toml, ttl, wait, label, server_order, hand_off, password_file, require)
    return Locks(Client.lazy(settings) if lazy else _wait(Client.connect(settings)))


async def aconnect(
    url: str | None = None,
    *,
    toml: str | os.PathLike[str] | None = None,
    ttl: Seconds | None = None,
    wait: Seconds | None = None,
    label: str | None = None,
    server_order: bool = False,
    hand_off: str | None = None,
    password_file: str | os.PathLike[str] | None = None,
    require: Iterable[str] = (),
) -> Locks:
    """As ``connect``, for asyncio."""
    settings = _settings(url, toml, ttl, wait, label, server_order, hand_off, password_file, require)
    return Locks(await finished(Client.connect(settings)))
