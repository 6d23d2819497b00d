"""The database as the shared parts of the store see it: transactions, and statements that both engines understand.

Statements bind values with `?`. They keep to what SQLite and PostgreSQL have in common; what differs is in the folder
of each engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

Value = TypeVar("Value")


class Rows(Protocol):
    """The outcome of a statement."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """A transaction."""

    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Rows: ...

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> object: ...


class Database(Protocol):
    """A transaction is a `with` block: it ends with the block, and an exception rolls it back. Thread-safe.

    Raises:
        StoreError: in all its kinds, from both blocks.
    """

    @property
    def has_tag(self) -> str:
        """A condition on `documents`: one of its tags is the bound value, in upper or lower case (ASCII)."""
        ...

    def turn(self, task: str) -> AbstractContextManager[bool]:
        """Whether this process may do a background task now: no two of those that share the store do it at once."""
        ...

    def reading(self) -> AbstractContextManager[Connection]:
        """One consistent view for the length of the block."""
        ...

    def writing(self) -> AbstractContextManager[Connection]:
        """All of the block or nothing of it is written. One such block runs at a time, in all processes."""
        ...

    def size(self, connection: Connection) -> int:
        """Of the whole store, in bytes."""
        ...

    def identity(self, connection: Connection) -> object:
        """Changes when another database takes the place of this one: what was cached of it is void."""
        ...

    def close(self) -> None: ...


def placeholders(values: Sized) -> str:
    """`?, ?, ?` for `IN (…)`: one for each value that is bound. Without values NULL, which nothing is equal to."""
    return ", ".join("?" * len(values)) or "NULL"


def padded(values: Iterable[Value]) -> tuple[Value, ...]:
    """Some values, the last one repeated, for `IN (…)`: of statements that are few, an engine keeps the plans."""
    known = tuple(values)
    return known + known[-1:] * ((1 << (len(known) - 1).bit_length()) - len(known)) if known else ()


def once(connection: Connection, name: str, read: Callable[[], Value]) -> Value:
    """What `read` returns, remembered by a view that has a `memo`."""
    memo: dict[str, Value] | None = getattr(connection, "memo", None)
    if memo is None:
        return read()
    if name not in memo:
        memo[name] = read()
    return memo[name]


def counter(connection: Connection, name: str) -> int:
    (value,) = connection.execute("SELECT value FROM counters WHERE name = ?", (name,)).fetchone()
    return int(value)


def set_counter(connection: Connection, name: str, value: int) -> None:
    connection.execute("UPDATE counters SET value = ? WHERE name = ?", (value, name))
