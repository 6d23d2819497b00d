"""A small key-value store with compare-and-set. SQLite keeps it for one gateway, PostgreSQL for several.

For state of which one gateway's word must hold for all: used codes, pins, approvals, grants, quotas. All methods block;
call them from a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

MAX_KEY_CHARS: Final = 512
MAX_VALUE_BYTES: Final = 1_048_576
ABSENT: Final = 0
"""The version of a key that does not exist."""


class StateAwayError(Exception):
    """The store cannot be used now; nothing is known of a change that was under way. `str(error)` is for people."""


class Entry(NamedTuple):
    value: bytes
    version: int  # never the same for two values of a key, also after it was deleted


Change = Callable[[float, Mapping[str, bytes]], Mapping[str, tuple[bytes, float]]]
"""From the time on the store's clock and the values of some keys, as far as they exist, to values to store, each with
the seconds until it ceases to exist."""


class KeyValues(Protocol):
    """Every method raises StateAwayError. A key whose time is over does not exist."""

    def get(self, key: str) -> Entry | None: ...

    def put(self, key: str, value: bytes, *, version: int | None = None, life_s: float | None = None) -> int | None:
        """Store a value if the key has this version (ABSENT: does not exist; None: whatever it has).

        Return the new version, or None if the key has another one. `life_s`: until it ceases to exist.
        """
        ...

    def put_all(self, values: Mapping[str, bytes]) -> None:
        """Store all of them or none, whatever versions they have."""
        ...

    def change(self, keys: Sequence[str], change: Change) -> None:
        """Replace values of some keys by what `change` makes of them, while no one else can change these keys."""
        ...

    def delete(self, key: str, *, version: int | None = None) -> bool:
        """Return whether the key existed, with that version if one is given."""
        ...

    def list(self, prefix: str) -> Mapping[str, Entry]:
        """Return the keys that begin with `prefix`, in order."""
        ...

    def dump(self) -> Sequence[tuple[str, bytes, float | None]]:
        """Return all keys with their values and the seconds that each has left; None: it stays."""
        ...

    def close(self) -> None: ...


def copy_values(source: KeyValues, target: KeyValues, *, overwrite: bool = False) -> tuple[int, int, list[str]]:
    """Copy what the target lacks; return how many keys there are, how many were written, and those that differ.

    `overwrite`: also those that differ. Raises StateAwayError: repeat it.
    """
    found, written, differing = 0, 0, []
    for key, value, left_s in source.dump():
        found += 1
        if target.put(key, value, version=ABSENT, life_s=left_s) is not None:
            written += 1
            continue
        kept = target.get(key)
        if kept is not None and kept.value == value:
            continue
        if overwrite:
            target.put(key, value, life_s=left_s)
            written += 1
        else:
            differing.append(key)
    return found, written, differing


def check(key: str, value: bytes = b"") -> None:
    """Raises ValueError: it cannot be stored in every engine."""
    if not key or len(key) > MAX_KEY_CHARS or not key.isprintable():
        raise ValueError(f"a key has 1 to {MAX_KEY_CHARS} printable characters")
    if len(value) > MAX_VALUE_BYTES:
        raise ValueError(f"a value has at most {MAX_VALUE_BYTES} bytes")
