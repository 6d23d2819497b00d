"""Reads items from files: JSON lines, Markdown with front matter, decision records (ADR), sessions and snippets."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any, cast

from pointsman.archive.model.context import SOURCES, TYPES, ContextItem, ContextSource
from pointsman.archive.text.chunks import chunks_of
from pointsman.archive.text.front_matter import FrontMatterError, read_front_matter
from pointsman.archive.text.lines import front_matter_end, lines_of

MAX_CONTENT = 20_000  # characters
_MAX_FIELD = 500
_IDS = uuid.UUID("5f0c7c7e-0c65-4f0b-9c7e-1d1f5d8e4a21")  # the namespace of our ids
_DATES = "must be a date like 2026-01-31 or 2026-01-31T10:00:00Z"
_UNTYPED = f"a discovery needs `type`: {', '.join(TYPES[:-1])} or {TYPES[-1]}"
MAX_ITEMS = 10_000  # of one file
_MARKDOWN = frozenset({".md", ".markdown", ".txt"})
_JSON_LINES = frozenset({".jsonl", ".ndjson"})
_DISCOVERY: ContextSource = "discovery"

_BY_FOLDER: Mapping[str, tuple[ContextSource, str | None]] = {
    **{name: (_DISCOVERY, kind) for kind in TYPES for name in (kind, f"{kind}s")},
    "adr": (_DISCOVERY, "decision"),
    "adrs": (_DISCOVERY, "decision"),
    "session": ("session", None),
    "sessions": ("session", None),
    "code": ("code", None),
    "snippets": ("code", None),
}
# `0007-use-postgres.md` or `adr-7-use-postgres.md`, but not a note named by its date.
_RECORD_NAME = re.compile(r"(?:adr[-_ ]?)?\d{1,5}[-_ ](?!\d{1,2}[-_ ]\d{1,2})\D", re.IGNORECASE)
_RECORD_HEADING = re.compile(r"^#{1,6}[ \t]+(?:\d+\.?[ \t]+)?decision\b", re.IGNORECASE | re.MULTILINE)
_FIRST_HEADING = re.compile(r"^#[ \t]+(.+?)[ \t]*#*[ \t]*$", re.MULTILINE)


class InvalidItemError(ValueError):
    """The text cannot become an item. The message says why, and what would be valid."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """Values for what the text itself does not specify."""

    source: ContextSource = "discovery"
    type: str | None = None
    module: str | None = None
    session: str | None = None
    date: str = ""
    title: str = ""
    path: str | None = None


def make_item(given: Mapping[str, Any], content: str, defaults: Defaults, place: str) -> ContextItem:
    """`place`: where the text comes from. The same place and content make the same id.

    Raises:
        InvalidItemError: the content is empty, or a field is invalid.
    """
    content = _sanitize(content.strip())[:MAX_CONTENT]
    if not content:
        raise InvalidItemError("the content is empty")
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


def format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat("T", "seconds").replace("+00:00", "Z")


def _sanitize(text: str) -> str:
    """Replace unpaired surrogates and NUL, which cannot be stored or searched."""
    return text.encode("utf-8", "replace").decode().replace("\0", " ")


def _source_and_type(given: Mapping[str, Any], defaults: Defaults) -> tuple[ContextSource, str]:
    source = _text(given, "source") or defaults.source
    if source not in SOURCES:
        raise InvalidItemError(f"`source` is `{source}`; it must be {', '.join(SOURCES[:-1])} or {SOURCES[-1]}")
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
        raise InvalidItemError(f"`{name}` must be a string")
    return _sanitize(str(value)).strip()[:_MAX_FIELD] or None


def _date(value: object) -> str | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise InvalidItemError(f"`date` {_DATES}")
    try:
        date = datetime.fromisoformat(value.strip())
    except ValueError:
        raise InvalidItemError(f"`date` is `{value[:40]}`; it {_DATES}") from None
    date = date if date.tzinfo else date.replace(tzinfo=UTC)
    return date.astimezone(UTC).isoformat("T", "seconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class Problem:
    """A part of a file that was skipped: where, and why."""

    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}" if self.where else self.reason


def is_readable(name: str) -> bool:
    """Whether a file of this name may hold items."""
    path = PurePosixPath(name)
    return path.suffix.lower() in _MARKDOWN | _JSON_LINES or _kind_from_folder(path)[0] == "code"


def read_items(name: str, text: str, modified: float, defaults: Defaults) -> Iterator[ContextItem | Problem]:
    """Read the items of a file. `name`: its path within the imported folder, whose parts may determine the type."""
    path = PurePosixPath(name)
    source, kind = _kind_from_folder(path)
    known = replace(
        defaults,
        source=source,
        type=kind or defaults.type,
        date=defaults.date or format_time(modified),
        title=path.stem,
    )
    if path.suffix.lower() in _JSON_LINES:
        yield from _json_lines(name, text, replace(known, title=""))
    elif path.suffix.lower() in _MARKDOWN:
        yield from _markdown(name, text, known)
    else:
        yield from _try_item({}, text, replace(known, path=path.name), name, "")


def _kind_from_folder(path: PurePosixPath) -> tuple[ContextSource, str | None]:
    """Source and type from the nearest folder with a known name."""
    for folder in reversed(path.parts[:-1]):
        if folder.casefold() in _BY_FOLDER:
            return _BY_FOLDER[folder.casefold()]
    return _DISCOVERY, None


def _json_lines(name: str, text: str, known: Defaults) -> Iterator[ContextItem | Problem]:
    taken = 0
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        if taken == MAX_ITEMS:
            yield Problem(f"line {number}", f"a file may have at most {MAX_ITEMS} items; skipped the rest")
            return
        taken += 1
        yield from _json_line(line, known, name, f"line {number}")


def _json_line(line: str, known: Defaults, name: str, where: str) -> Iterator[ContextItem | Problem]:
    try:
        given = json.loads(line)
    except (ValueError, RecursionError):
        yield Problem(where, 'not JSON; expected {"type": "rule", "content": "..."}')
        return
    if not isinstance(given, dict) or not isinstance(given.get("content"), str):
        yield Problem(where, "must be an object with a string `content`")
        return
    yield from _try_item(given, given["content"], known, name, where)


def _markdown(name: str, text: str, known: Defaults) -> Iterator[ContextItem | Problem]:
    lines = lines_of(text)
    try:
        given = read_front_matter(lines)
    except FrontMatterError as error:
        yield Problem("front matter", str(error))
        return
    body = "\n".join(lines[front_matter_end(lines) :])
    if known.type is None and _is_record(PurePosixPath(name), body):
        known = replace(known, type="decision")
    heading = _FIRST_HEADING.search(body)
    title = str(given.get("title") or (heading.group(1) if heading else known.title))
    known = replace(known, title=title)
    if known.source == "session" or given.get("source") == "session":
        yield from _session(name, given, body, known)
    else:
        yield from _try_item(given, body, known, name, "")


def _session(name: str, given: Mapping[str, Any], body: str, known: Defaults) -> Iterator[ContextItem | Problem]:
    """A session is long, so each passage becomes an item. Its name defaults to that of the file."""
    known = replace(known, session=known.session or PurePosixPath(name).stem)
    rest = {key: value for key, value in given.items() if key != "id"}
    for place, chunk in enumerate(chunks_of(body, known.title)):
        if place == MAX_ITEMS:
            yield Problem("", f"a session may have at most {MAX_ITEMS} passages; skipped the rest")
            return
        yield from _try_item(rest, chunk.text, known, f"{name}#{place}", f"line {chunk.start_line}")


def _try_item(
    given: Mapping[str, Any], content: str, known: Defaults, place: str, where: str
) -> Iterator[ContextItem | Problem]:
    try:
        yield make_item(given, content, known, place)
    except InvalidItemError as error:
        yield Problem(where, str(error))


def _is_record(path: PurePosixPath, body: str) -> bool:
    return _RECORD_NAME.match(path.name) is not None or _RECORD_HEADING.search(body) is not None
