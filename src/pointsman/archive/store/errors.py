"""Errors of a store, worded for the operator of the archive."""

from __future__ import annotations


class StoreError(Exception):
    """The operation failed and changed nothing. The message says why, and the next step."""


class StoreLockedError(StoreError):
    """Another process is writing and did not finish in time."""


class StoreFullError(StoreError):
    """There is no disk space left for the write."""


class StoreAwayError(StoreError):
    """The server of the database cannot be reached. Nothing is known of a write that was under way."""


class StoreUnusableError(StoreError):
    """The file is damaged, not ours, written by a newer version, or not accessible."""


class UnknownCollectionError(StoreError):
    def __init__(self, name: str) -> None:
        super().__init__(f'Collection "{name}" not found.')


class NameTakenError(StoreError):
    """The name or alias is the one of another collection."""

    def __init__(self, name: str, holder: str) -> None:
        super().__init__(f'"{name}" is already the name or alias of the collection "{holder}". Choose another one.')
