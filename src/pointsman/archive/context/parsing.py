"""From what somebody wrote to one item: checked, bounded, with an id that stays the same."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from pointsman.archive.model.context import SOURCES, TYPES, ContextItem, ContextSource

MAX_CONTENT = 20_000  # characters
_MAX_FIELD = 500
_IDS = uuid.UUID("5f0c7c7e-0c65-4f0b-9c7e-1d1f5d8e4a21")  # the space in which our ids are made
_DATES = "should read like 2026-01-31 or 2026-01-31T10:00:00Z"
_UNTYPED = f"a discovery needs `type`: {', '.join(TYPES[:-1])} or {TYPES[-1]}"


class InvalidItemError(ValueError):
    """What was read cannot become an item; the message says why and what would do."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """What holds where the writer says nothing."""

    source: ContextSource = "discovery"
    type: str | None = None
    module: str | None = None
    session: str | None = None
    date: str = ""
    title: str = ""
    path: str | None = None


def make_item(given: Mapping[str, Any], content: str, defaults: Defaults, place: str) -> ContextItem:
    """`place` is where it was found: the same place and content make the same id.

    Raises:
        InvalidItemError: it says nothing, or what it says of itself cannot be.
    """
    content = whole(content.strip())[:MAX_CONTENT]
    if not content:
        raise InvalidItemError("there is no content")
    source, kind = _source_and_type(given, defaults)
    return ContextItem(
        id=_text(given, "id") or str(uuid.uuid5(_IDS, f"{place}\0{content}")),
        source=source,
        type=kind,
        title=_text(given, "title") or defaults.title,
        content=content,
        date=_date(given.get("date")) or defaults.date,
        module=_text(given, "module") or defaults.module,
        session=_text(given, "session") or defaults.session,
        path=_text(given, "path") or defaults.path,
    )


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat("T", "seconds").replace("+00:00", "Z")


def whole(text: str) -> str:
    """Half a surrogate pair is no character, and nothing can be searched for a NUL."""
    return text.encode("utf-8", "replace").decode().replace("\0", " ")


def _source_and_type(given: Mapping[str, Any], defaults: Defaults) -> tuple[ContextSource, str]:
    source = _text(given, "source") or defaults.source
    if source not in SOURCES:
        raise InvalidItemError(f"`source` is `{source}`; it can be {', '.join(SOURCES[:-1])} or {SOURCES[-1]}")
    if source != "discovery":
        return cast(ContextSource, source), source
    kind = _text(given, "type") or defaults.type
    if kind is None:
        raise InvalidItemError(_UNTYPED)
    if kind.casefold() not in TYPES:
        raise InvalidItemError(f"`type` is `{kind}`; {_UNTYPED}")
    return "discovery", kind.casefold()


def _text(given: Mapping[str, Any], name: str) -> str | None:
    value = given.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidItemError(f"`{name}` must be a text")
    return whole(str(value)).strip()[:_MAX_FIELD] or None


def _date(value: object) -> str | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise InvalidItemError(f"`date` {_DATES}")
    try:
        known = datetime.fromisoformat(value.strip())
    except ValueError:
        raise InvalidItemError(f"`date` is `{value[:40]}`; it {_DATES}") from None
    known = known if known.tzinfo else known.replace(tzinfo=UTC)
    return known.astimezone(UTC).isoformat("T", "seconds").replace("+00:00", "Z")
