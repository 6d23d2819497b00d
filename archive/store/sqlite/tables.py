"""All tables of the store, by the version of the file that brought them."""

from __future__ import annotations

from pointsman.archive.store.sqlite import indexes
from pointsman.archive.store.sqlite.schema import Script

VERSIONS: tuple[tuple[Script, ...], ...] = ((indexes.SCHEMA,),)
