"""From files to items: JSON lines, Markdown with front matter, records of decisions (ADR), sessions and snippets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from pointsman.archive.context.parsing import Defaults, InvalidItemError, make_item, moment
from pointsman.archive.model.context import TYPES, ContextItem, ContextSource
from pointsman.archive.text.chunks import chunks_of
from pointsman.archive.text.front_matter import FrontMatterError, read_front_matter
from pointsman.archive.text.lines import front_matter_end, lines_of

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
# `0007-use-postgres.md` or `adr-7-use-postgres.md`; a note that is named by its day is no such record.
_RECORD_NAME = re.compile(r"(?:adr[-_ ]?)?\d{1,5}[-_ ](?!\d{1,2}[-_ ]\d{1,2})\D", re.IGNORECASE)
_RECORD_HEADING = re.compile(r"^#{1,6}[ \t]+(?:\d+\.?[ \t]+)?decision\b", re.IGNORECASE | re.MULTILINE)
_FIRST_HEADING = re.compile(r"^#[ \t]+(.+?)[ \t]*#*[ \t]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that was left out: where in the file, and why."""

    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}" if self.where else self.reason


def is_readable(name: str) -> bool:
    """Whether a file of this name can hold items at all."""
    path = PurePosixPath(name)
    return path.suffix.lower() in _MARKDOWN | _JSON_LINES or _from_folder(path)[0] == "code"


def read_items(name: str, text: str, modified: float, defaults: Defaults) -> Iterator[ContextItem | Problem]:
    """All that a file holds. `name` is its path from where the reading began: folders in it may tell the kind."""
    path = PurePosixPath(name)
    source, kind = _from_folder(path)
    known = replace(
        defaults, source=source, type=kind or defaults.type, date=defaults.date or moment(modified), title=path.stem
    )
    if path.suffix.lower() in _JSON_LINES:
        yield from _json_lines(name, text, replace(known, title=""))
    elif path.suffix.lower() in _MARKDOWN:
        yield from _markdown(name, text, known)
    else:
        yield from _made({}, text, replace(known, path=path.name), name, "")


def _from_folder(path: PurePosixPath) -> tuple[ContextSource, str | None]:
    """The nearest folder with a telling name decides."""
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
            yield Problem(f"line {number}", f"{MAX_ITEMS} items are the most of one file; the rest is left out")
            return
        taken += 1
        yield from _json_line(line, known, name, f"line {number}")


def _json_line(line: str, known: Defaults, name: str, where: str) -> Iterator[ContextItem | Problem]:
    try:
        given = json.loads(line)
    except (ValueError, RecursionError):
        yield Problem(where, 'it is not JSON; it should read like {"type": "rule", "content": "..."}')
        return
    if not isinstance(given, dict) or not isinstance(given.get("content"), str):
        yield Problem(where, "it must be an object with a text `content`")
        return
    yield from _made(given, given["content"], known, name, where)


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
        yield from _made(given, body, known, name, "")


def _session(name: str, given: Mapping[str, Any], body: str, known: Defaults) -> Iterator[ContextItem | Problem]:
    """A session is long: it is found by its passages. It is named by its file where it has no name of its own."""
    known = replace(known, session=known.session or PurePosixPath(name).stem)
    rest = {key: value for key, value in given.items() if key != "id"}
    for place, chunk in enumerate(chunks_of(body, known.title)):
        if place == MAX_ITEMS:
            yield Problem("", f"{MAX_ITEMS} passages are the most of one session; the rest is left out")
            return
        yield from _made(rest, chunk.text, known, f"{name}#{place}", f"line {chunk.start_line}")


def _made(
    given: Mapping[str, Any], content: str, known: Defaults, place: str, where: str
) -> Iterator[ContextItem | Problem]:
    try:
        yield make_item(given, content, known, place)
    except InvalidItemError as error:
        yield Problem(where, str(error))


def _is_record(path: PurePosixPath, body: str) -> bool:
    return _RECORD_NAME.match(path.name) is not None or _RECORD_HEADING.search(body) is not None
