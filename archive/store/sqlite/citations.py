"""What documents cite, and which document that is. Written in the same transaction as the document."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from pointsman.archive.model import Citation, Document

SCHEMA = ""


def write(connection: sqlite3.Connection, row: int, document: Document, citations: Sequence[Citation]) -> None:
    """Replace what the document cites, and settle what waited for it. `row` is its place in `documents`."""


def forget(connection: sqlite3.Connection, row: int) -> None:
    """The document is about to go: its own citations go, those that lead to it wait again."""
