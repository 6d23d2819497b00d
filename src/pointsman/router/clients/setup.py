"""Points a client at this gateway and takes that back: one entry in the client's file, all else untouched."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pointsman.config.files import ReplaceError, create, rewrite
from pointsman.config.secrets import MASK, PREFIX
from pointsman.config.yaml.text_edits import insert
from pointsman.router.clients import jsonc, toml_table
from pointsman.router.clients.client_file import MAX_BYTES, ClientFileError, Contents, changed, read
from pointsman.router.clients.dialects import Dialect
from pointsman.router.clients.undo import Change, latest, recorded

_SECRET = re.compile(rf"{PREFIX}[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Setup:
    """Where a client keeps its servers, and what is there under one name."""

    dialect: Dialect
    path: Path
    name: str
    contents: Contents

    @property
    def entry(self) -> Mapping[str, Any] | None:
        found = self.contents.entries(self.dialect.section).get(self.name)
        return found if isinstance(found, Mapping) else None


def look(dialect: Dialect, path: Path, name: str) -> Setup:
    """Raises ClientFileError."""
    return Setup(dialect, path, name, read(path, dialect.format))


def write(setup: Setup, entry: Mapping[str, Any] | None, state: Path, detail: Mapping[str, Any]) -> None:
    """Set the client's entry, or remove it if `entry` is None; keep what is needed to take that back.

    Raises:
        ClientFileError, ReplaceError: nothing has changed.
    """
    previous = dict(setup.entry) if setup.entry is not None else None
    detail = {**detail, "entry": setup.name, "previous": previous}
    _text_after(setup, setup.contents.text or "", entry)  # before anything is written
    with recorded(state, "client", setup.dialect.name, [setup.path], detail):
        _apply(setup, entry)


def take_back(dialect: Dialect, state: Path) -> Change | None:
    """Undo the last change of the client's file; None: there is none. The caller discards the record.

    Where another program has changed the file since, only the entry is put back as it was.

    Raises:
        ClientFileError, ReplaceError: nothing has changed.
    """
    change = latest(state, "client", dialect.name)
    if change is None:
        return None
    path = Path(next(iter(change.files)))
    if not change.restore(path):
        _apply(look(dialect, path, change.detail["entry"]), change.detail["previous"])
    return change


def secret_in(entry: Mapping[str, Any] | None) -> str | None:
    """The token that an entry carries."""
    found = _SECRET.search(repr(entry)) if entry is not None else None
    return found[0] if found else None


def snippet(dialect: Dialect, name: str, entry: Mapping[str, Any]) -> str:
    """The entry as a person would paste it into an empty file of the client."""
    if dialect.format == "toml":
        return toml_table.rendered(dialect.section, name, entry)
    if dialect.format == "yaml":
        return insert("", None, dialect.section, name, entry)
    return jsonc.put("", dialect.section, name, entry)


def masked(text: str) -> str:
    return _SECRET.sub(PREFIX + MASK, text)


def _apply(setup: Setup, entry: Mapping[str, Any] | None) -> None:
    if setup.contents.text is not None:
        rewrite(setup.path, lambda text: _text_after(setup, text, entry), MAX_BYTES[setup.dialect.format])
        return
    if entry is None:
        return
    try:
        create(setup.path, _text_after(setup, "", entry).encode())
    except FileExistsError:
        raise ReplaceError(f"{setup.path} was created at this moment by another program. Try again.") from None


def _text_after(setup: Setup, text: str, entry: Mapping[str, Any] | None) -> str:
    try:
        return changed(text, setup.dialect.format, setup.dialect.section, setup.name, entry)
    except ClientFileError as error:
        raise ClientFileError(f"{setup.path}: {error}") from None
