"""One name for a replica in all that the owner reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def replica_name(one: Mapping[str, Any]) -> str:
    """`worker 2`, on one state folder `replica 2`, and on a database `replica` with its id and address."""
    if "worker" in one:
        return f"worker {one['worker']}"
    if "folder" in one:
        return f"replica {one['folder']}"
    return f"replica {one['replica']} ({one['address']})"


def at_start(name: str) -> str:
    """The name at the beginning of a sentence."""
    return name[:1].upper() + name[1:]
