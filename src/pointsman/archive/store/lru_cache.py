"""A cache with a limit in bytes: the least recently used values are evicted."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

OVERHEAD = 512  # bytes of an entry besides its arrays


class Sized(Protocol):
    @property
    def bytes(self) -> int: ...


Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value", bound=Sized)


class LruCache(Generic[Key, Value]):
    """Thread-safe."""

    def __init__(self, most_bytes: int) -> None:
        self._room = most_bytes
        self._lock = threading.Lock()
        self._values: OrderedDict[Key, Value] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: Key, value: Value) -> None:
        with self._lock:
            known = self._values.pop(key, None)
            if known is not None:
                self._room += known.bytes + OVERHEAD
            self._values[key] = value
            self._room -= value.bytes + OVERHEAD
            while self._room < 0:
                self._room += self._values.popitem(last=False)[1].bytes + OVERHEAD
