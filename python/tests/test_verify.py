"""The check of a lock in a transaction of the application, by the drivers that applications use."""

from __future__ import annotations

import sqlite3
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import psycopg2
import pymysql
import pytest
import sqlalchemy
import sqlalchemy.exc
import sqlalchemy.orm

import lockwell
from servers import Servers

Opened = tuple[Any, Callable[[], None]]


def mysql(url: str, **options: Any) -> Any:
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname,
        port=parts.port,
        user=parts.username or "root",
        password=parts.password or "",
        database=parts.path.strip("/"),
        **options,
    )


def plain(url: str) -> str:
    return url.split("?")[0]


def engine(url: str) -> sqlalchemy.Engine:
    if url.startswith("mysql"):
        return sqlalchemy.create_engine(
            "mysql+pymysql://", creator=lambda: mysql(url), poolclass=sqlalchemy.NullPool
        )
    return sqlalchemy.create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(plain(url)), poolclass=sqlalchemy.NullPool
    )


@contextmanager
def driver(connection: Any, *, cursor: bool = False) -> Iterator[Opened]:
    try:
        yield (connection.cursor() if cursor else connection, connection.commit)
    finally:
        connection.close()


@contextmanager
def core(url: str) -> Iterator[Opened]:
    with engine(url).connect() as connection:
        yield connection, connection.commit


@contextmanager
def session(url: str) -> Iterator[Opened]:
    with sqlalchemy.orm.Session(engine(url)) as session:
        yield session, session.commit


@contextmanager
def django(url: str) -> Iterator[Opened]:
    from django import setup
    from django.conf import settings
    from django.db.backends.postgresql.base import DatabaseWrapper
    from django.db.utils import ConnectionHandler

    if not settings.configured:
        settings.configure()
    setup()
    parts = urlsplit(url)
    options = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.strip("/"),
        "USER": parts.username,
        "PASSWORD": parts.password or "",
        "HOST": parts.hostname,
        "PORT": parts.port,
    }
    connection = ConnectionHandler({"default": options})["default"]
    assert isinstance(connection, DatabaseWrapper)
    connection.set_autocommit(False)
    try:
        yield connection, connection.commit
    finally:
        connection.rollback()
        connection.close()


CLIENTS: list[tuple[str, str, Callable[[str], Any]]] = [
    ("psycopg", "postgres", lambda url: driver(psycopg.connect(plain(url)))),
    ("psycopg-cursor", "postgres", lambda url: driver(psycopg.connect(plain(url)), cursor=True)),
    ("psycopg2", "postgres", lambda url: driver(psycopg2.connect(plain(url)))),
    ("psycopg2-cursor", "postgres", lambda url: driver(psycopg2.connect(plain(url)), cursor=True)),
    ("pymysql", "mariadb", lambda url: driver(mysql(url))),
    ("pymysql-cursor", "mariadb", lambda url: driver(mysql(url), cursor=True)),
    ("sqlalchemy-postgres", "postgres", core),
    ("sqlalchemy-mysql", "mariadb", core),
    ("sqlalchemy-session", "postgres", session),
    ("django", "postgres", django),
]


@pytest.mark.parametrize(
    ("server", "begin"), [pytest.param(server, begin, id=name) for name, server, begin in CLIENTS]
)
def test_a_transaction_is_bound_to_the_lock(
    server: str, begin: Callable[[str], Any], servers: Servers, name: str
) -> None:
    url = servers.url(server)
    name = f"{name}: 100% of :them, ? and $1"
    with lockwell.connect(url) as locks, lockwell.connect(url) as others:
        with locks.lock(name, ttl=60) as held:
            with begin(url) as (transaction, commit):
                held.verify_in(transaction)
                thief = threading.Thread(target=lambda: replace(others, name))
                thief.start()
                time.sleep(0.7)
                assert held.token in [holder.token for holder in locks.inspect(name).holders]
                commit()
            thief.join(60)
            with begin(url) as (transaction, _), pytest.raises(lockwell.LostError) as lost:
                held.verify_in(transaction)
            assert lost.value.lock == name and "roll the transaction back" in str(lost.value)
            held._guard.drop_soon()


def replace(others: lockwell.Locks, name: str) -> None:
    """Another holder takes the lock away, and frees it."""
    while True:
        try:
            others.force_release(name)
            others.lock(name, wait=30).acquire().release()
            return
        except lockwell.LockwellError:
            continue


def test_a_connection_without_a_transaction_is_refused(servers: Servers, name: str) -> None:
    urls = servers.url("postgres"), servers.url("mariadb")
    connections: list[tuple[str, Any]] = [
        (urls[0], psycopg.connect(plain(urls[0]), autocommit=True)),
        (urls[1], mysql(urls[1], autocommit=True)),
    ]
    for url, connection in connections:
        with lockwell.connect(url) as locks, locks.lock(name) as held:
            with pytest.raises(lockwell.InvalidInputError, match="begin a transaction"):
                held.verify_in(connection)
            connection.cursor().execute("BEGIN")
            held.verify_in(connection)
            connection.rollback()
            connection.close()


@pytest.mark.parametrize("begin", [core, session])
def test_an_error_shows_no_secret(begin: Callable[[str], Any], servers: Servers, name: str) -> None:
    url = servers.url("postgres")
    with lockwell.connect(url) as locks, locks.lock(name) as held:
        secret = held.verify_statement()
        with begin(url) as (transaction, _):
            with pytest.raises(sqlalchemy.exc.ProgrammingError):
                transaction.execute(sqlalchemy.text("SELECT 1 FROM nowhere"))
            with pytest.raises(sqlalchemy.exc.DBAPIError) as aborted:
                held.verify_in(transaction)
        shown = "".join(traceback.format_exception(aborted.value)) + repr(vars(aborted.value))
        assert "aborted" in shown and "[SQL" not in shown and secret not in shown


def test_several_are_verified_one_by_one(servers: Servers, name: str) -> None:
    url = servers.url("postgres")
    with lockwell.connect(url) as locks, locks.lock_all([f"{name}/a", f"{name}/b"]) as both:
        with psycopg.connect(plain(url)) as connection:
            both.verify_in(connection)
        locks.force_release(f"{name}/b")
        with pytest.raises(lockwell.LostError), psycopg.connect(plain(url)) as connection:
            both.verify_in(connection)
        both.locks[1]._guard.drop_soon()


def test_a_lock_elsewhere_is_refused(memory: lockwell.Locks, tmp_path: Path) -> None:
    with memory.lock("a") as held, pytest.raises(lockwell.InvalidInputError):
        held.verify_in(None)
    # Another file than that of the locks: what opens theirs would harm it.
    connection = sqlite3.connect(tmp_path / "other.db")
    with lockwell.connect(f"sqlite://{tmp_path}/locks.db") as locks, locks.lock("a") as held:
        for transaction in connection, connection.cursor():
            with pytest.raises(lockwell.UnsupportedError, match="another copy"):
                held.verify_in(transaction)
    connection.close()


def test_an_owner_that_has_left_is_refused(servers: Servers, name: str) -> None:
    with lockwell.connect(servers.url("postgres")) as locks:
        owner = locks.owner()
        with owner.lock(name):
            inner = owner.lock(name).acquire()
            assert inner.verify_statement()
            inner.release()
            with pytest.raises(lockwell.NotHeldError):
                inner.verify_statement()
