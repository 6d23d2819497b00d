"""Project context: items, their filter, and accesses to files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

ContextSource = Literal["discovery", "session", "code"]
DiscoveryType = Literal["pattern", "rule", "decision", "issue"]

SOURCES: tuple[str, ...] = get_args(ContextSource)
TYPES: tuple[str, ...] = get_args(DiscoveryType)


@dataclass(frozen=True, slots=True)
class ContextItem:
    id: str
    source: ContextSource
    type: str  # one of TYPES for a discovery, else the source
    title: str
    content: str
    date: str  # ISO, in UTC
    module: str | None = None
    session: str | None = None
    path: str | None = None  # the file that a snippet was taken from


@dataclass(frozen=True, slots=True)
class ItemFilter:
    """Which items are searched; None: any."""

    type: str | None = None
    module: str | None = None  # compared without case


@dataclass(frozen=True, slots=True)
class Access:
    """How often a file was read through `read_file`, and when last (seconds since 1970)."""

    root: str
    path: str
    count: int
    last: float
