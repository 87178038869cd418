"""The check of a lock in a transaction of the application."""

from __future__ import annotations

from typing import Any

from ._errors import InvalidInputError, LostError, UnsupportedError

_IN_TRANSACTION = 1  # In the status of a server of MySQL.


def verify(lock: str, statement: str, transaction: Any) -> None:
    """Sends the statement in the transaction: see ``Lock.verify_in``."""
    if hasattr(transaction, "get_bind"):
        # A session of SQLAlchemy.
        transaction = transaction.connection()
    if hasattr(transaction, "exec_driver_sql"):
        # The connection of SQLAlchemy has to know that a transaction begins.
        connection = transaction.connection.driver_connection
        _refuse(lock, connection)
        try:
            found = transaction.exec_driver_sql(statement).fetchall()
        except Exception as error:
            failed: Any = error
            # Its text would show the statement, and so the secret by which the lock is released.
            failed.statement = None
            raise
    else:
        cursor = transaction if hasattr(transaction, "fetchall") else transaction.cursor()
        connection = getattr(cursor, "connection", transaction)
        _refuse(lock, connection)
        # Without arguments: no driver looks for a placeholder in it.
        cursor.execute(statement)
        found = cursor.fetchall()
    if not found:
        text = f"lock {lock!r}: the lock is not held any more; roll the transaction back"
        raise LostError(text, operation="verify", lock=lock)
    if not _is_open(connection):
        text = f"lock {lock!r}: the connection commits each statement by itself: begin a transaction before"
        raise InvalidInputError(text, operation="verify", lock=lock)


def _refuse(lock: str, connection: Any) -> None:
    if any(cls.__module__ == "sqlite3" for cls in type(connection).__mro__):
        text = (
            f"lock {lock!r}: sqlite3 is another copy of SQLite than that of lockwell, and two copies in one "
            "process destroy a file: compare tokens"
        )
        raise UnsupportedError(text, operation="verify", lock=lock)


def _is_open(connection: Any) -> bool:
    """Whether a transaction is open, after a statement. If a driver does not tell, it is taken to be."""
    status = getattr(getattr(connection, "info", None), "transaction_status", None)
    if status is not None:
        # Of psycopg; 0 means that it is idle.
        return bool(status != 0)
    if not hasattr(connection, "get_autocommit"):
        return True
    # Of MySQL. Only PyMySQL tells whether one was begun where each statement is committed otherwise.
    return not connection.get_autocommit() or bool(getattr(connection, "server_status", 0) & _IN_TRANSACTION)
