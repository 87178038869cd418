"""Connecting."""

from __future__ import annotations

import os
import weakref
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


def _begin() -> None:
    """Before the client is made, in each process."""
    _log.refresh()
    _process.expect_end()


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

    Connect in each process, after a fork, or use ``per_process``.
    """
    settings = _settings(url, toml, ttl, wait, label, server_order, hand_off, password_file, require)
    _begin()
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
    _begin()
    return Locks(await finished(Client.connect(settings)))


def per_process(
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
    """A client for programs that fork: each process connects for itself, with its first request.

    It can be made before the fork, as by ``gunicorn --preload``, and its decorators can be used there. What
    it makes (requests, locks, owners) belongs to the process that made it, and ``close`` closes the client of
    the process that calls it. The options are those of ``connect``. An address that is wrong is an error at
    once; without one, each process reads ``LOCKWELL_URL`` at its first use.
    """
    return _PerProcess(_settings(url, toml, ttl, wait, label, server_order, hand_off, password_file, require))


class _PerProcess(Locks):
    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        if settings["url"] is not None or settings["toml"] is not None:
            # It sends nothing, but looks at the settings.
            self._client

    @property
    def _client(self) -> Client:
        client = _clients.get(self)
        if client is None:
            _begin()
            # Of threads that come here together, all get the same.
            client = _clients.setdefault(self, Client.lazy(self._settings))
        return client


# The clients of this process.
_clients: weakref.WeakKeyDictionary[_PerProcess, Client] = weakref.WeakKeyDictionary()
# A client of the parent is of no use in a child.
os.register_at_fork(after_in_child=_clients.clear)
