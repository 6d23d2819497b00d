"""What can go wrong with a store, in words for the person who keeps it."""

from __future__ import annotations


class StoreError(Exception):
    """The store cannot do what was asked; nothing was changed. The message says why and what helps."""


class StoreLockedError(StoreError):
    """Another process is writing and did not finish in time."""


class StoreFullError(StoreError):
    """There is no room left for what was to be written."""


class StoreUnusableError(StoreError):
    """The file is damaged, not ours, made by a newer version, or may not be opened."""


class UnknownCollectionError(StoreError):
    def __init__(self, name: str) -> None:
        super().__init__(f'Collection "{name}" not found.')


class NameTakenError(StoreError):
    """A collection's name or alias already leads to another collection."""

    def __init__(self, name: str, holder: str) -> None:
        super().__init__(f'"{name}" already leads to the collection "{holder}". Choose another name or alias.')
