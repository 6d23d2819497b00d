"""What a document is called, from when it is, what it is about: from front matter, text, path or file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import PurePosixPath
from typing import Any

from pointsman.archive.model.model import Source
from pointsman.archive.text.outline import Heading
from pointsman.archive.text.plain import plain

MAX_TITLE = 300
MAX_TAGS = 100
_MAX_TAG = 100

_DAY = re.compile(r"(?<!\d)(\d{4}-\d{2}-\d{2})(?!\d)")
_WEB = ("http://", "https://")
_TOLD = frozenset({"title", "date", "tags", "source", "url"})  # have places of their own


def title_of(told: Mapping[str, Any], given: str | None, headings: Sequence[Heading], path: str) -> str:
    """`given`: what the format itself calls the title."""
    first = next((heading.text for heading in headings if heading.level == 1), "")
    for title in (told.get("title"), given, plain(first)):
        if isinstance(title, str | int | float) and (said := " ".join(str(title).split())):
            return said[:MAX_TITLE]
    return PurePosixPath(path).stem[:MAX_TITLE]


def date_of(told: Mapping[str, Any], given: str | None, path: str, mtime_ns: int) -> str:
    """A day, or a moment in UTC."""
    for said in (told.get("date"), given):
        if isinstance(said, str) and (moment := _iso(said.strip())):
            return moment
    for day in reversed(_DAY.findall(path)):
        if moment := _iso(day):
            return moment
    try:
        return _moment(datetime.fromtimestamp(mtime_ns / 1e9, UTC))
    except (ValueError, OverflowError, OSError):  # a year that calendars do not know
        return "1970-01-01"


def tags_of(told: Mapping[str, Any]) -> tuple[str, ...]:
    """A list, or words with commas or spaces between them."""
    said = told.get("tags")
    if isinstance(said, str):
        said = said.split(",") if "," in said else said.split()
    if not isinstance(said, list):
        return ()
    tags = (str(tag).strip().lstrip("#")[:_MAX_TAG] for tag in said if isinstance(tag, str | int | float))
    return tuple(dict.fromkeys(tag for tag in tags if tag))[:MAX_TAGS]


def source_of(told: Mapping[str, Any], asked: Source | None) -> Source:
    if asked is not None:
        return asked
    said = told.get("source")
    return "url" if isinstance(said, str) and (said == "url" or said.startswith(_WEB)) else "research"


def url_of(told: Mapping[str, Any], given: str | None) -> str | None:
    """An address in `source` is one too."""
    for said in (told.get("url"), told.get("source"), given):
        if isinstance(said, str) and said.startswith(_WEB):
            return said
    return None


def rest_of(told: Mapping[str, Any]) -> dict[str, Any] | None:
    return {key: value for key, value in told.items() if key not in _TOLD} or None


def _iso(said: str) -> str | None:
    try:
        if len(said) == 10:
            return date.fromisoformat(said).isoformat()
        return _moment(datetime.fromisoformat(said))
    except (ValueError, OverflowError):
        day = _DAY.match(said)
        return _iso(day[1]) if day and said != day[1] else None


def _moment(moment: datetime) -> str:
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return f"{moment.isoformat(timespec='seconds')}Z"
