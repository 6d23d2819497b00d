"""The audit: live, filtered by the address, opened to the rounds of a request, and exported as JSON Lines."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Generator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from msgspec import UNSET
from starlette.responses import Response, StreamingResponse

from pointsman.catalog.rights import OWNER_ID
from pointsman.core.model import Json
from pointsman.router.audit.display import in_blocks, json_lines, what_of
from pointsman.router.audit.kept import READ_ERRORS
from pointsman.router.audit.query import SCANNED, Filter, Page, Source, read_page, read_rounds, read_rows
from pointsman.router.audit.rows import ENDINGS, KINDS, Row
from pointsman.router.owner.channel import OwnerError
from pointsman.router.owner.parts import Parts
from pointsman.router.page.registry import Screen
from pointsman.router.page.tool_form import pretty
from pointsman.router.page.view import View

PER_PAGE = 50
MAX_EXPORTS = 2  # at once
MAX_VALUE = 1_000  # characters of a filter
UNDER_WAY = "open"
_FILTERS = ("kind", "token", "project", "server", "tool", "outcome", "code", "text", "since", "until")
_AGO = re.compile(r"([0-9]{1,6})([mhd])")
_UNIT_S = {"m": 60, "h": 3600, "d": 86_400}
_exporting: set[object] = set()


async def show(view: View) -> Response:
    parts, wanted = view.parts, _filter(view)
    before = seq_of(view.query("before")) or None
    page = await _read(parts, wanted, before, PER_PAGE)
    config = parts.current.config
    return view.render(
        "activity.html",
        page=page,
        what=what_of,
        live=before is None,
        given={name: view.query(name) for name in _FILTERS},
        filtered=any(view.query(name) for name in _FILTERS),
        kinds=KINDS,
        outcomes=(*ENDINGS, UNDER_WAY),
        tokens=[*config.tokens, *parts.catalog.identities.signed_in(), OWNER_ID],
        servers=list(config.servers),
        scanned=SCANNED,
        unset=UNSET,
    )


async def _read(parts: Parts, wanted: Filter, before: int | None, count: int) -> Page:
    """Raises OwnerError."""

    def read() -> Page:
        return read_page(parts.audit_rows, wanted, newest=parts.audit.last_seq, before=before, count=count)

    try:
        return await asyncio.to_thread(read)
    except READ_ERRORS as error:
        raise OwnerError("audit_unreadable", f"The audit cannot be read: {error}") from error


async def one(view: View) -> Response:
    seq = seq_of(view.path("seq"))
    try:
        rounds = await asyncio.to_thread(read_rounds, view.parts.audit_rows, seq, view.query("request") or None)
    except READ_ERRORS as error:
        raise OwnerError("audit_unreadable", f"The audit cannot be read: {error}") from error
    row = next((row for row in rounds if row.seq == seq), None)
    if row is None:
        raise OwnerError("unknown_row", f"The audit has no row {seq:,}. It may have been deleted for its age.")
    return view.render(
        "entry.html",
        row=row,
        rounds=rounds,
        what=what_of,
        arguments=None if row.arguments is UNSET else pretty(row.arguments),
        recorded=view.parts.current.config.audit.arguments,
        again=_again(view.parts, row),
        unset=UNSET,
    )


def seq_of(text: str) -> int:
    """0: it is none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 17 else 0


def _again(parts: Parts, row: Row) -> Json | None:
    """The fields of the lab's form that search again what this row searched, as the same caller if it still exists."""
    if row.kind != "discovery" or not row.queries:
        return None
    config = parts.current.config
    token = (row.code or "").removeprefix("tokens.") if row.method == "lab/search" else row.token or ""
    return {
        "queries": "\n".join(map(_one_line, row.queries)),
        "token": token if parts.catalog.rights.token_of(token) is not None else "",
        "project": row.project if row.project in config.projects else "",
    }


def _one_line(query: str) -> str:
    """Without control characters, which have no words for a search in them."""
    return " ".join("".join(char if char.isprintable() else " " for char in query).split())


async def export(view: View) -> Response:
    """All matching rows, oldest first, as `pointsman audit list --json` prints them."""
    wanted = _filter(view)
    if len(_exporting) >= MAX_EXPORTS:
        raise OwnerError("busy", f"{MAX_EXPORTS} exports are under way. Wait for one to end.")
    await _read(view.parts, wanted, None, 1)  # an error has to come before the answer begins
    headers = {"Content-Disposition": 'attachment; filename="audit.jsonl"'}
    return StreamingResponse(_lines(view.parts.audit_rows, wanted), media_type="application/jsonl", headers=headers)


async def _lines(source: Source, wanted: Filter) -> AsyncGenerator[bytes]:
    """Read in one thread of its own: a connection of SQLite belongs to its thread."""
    mark, loop = object(), asyncio.get_running_loop()
    _exporting.add(mark)
    thread = ThreadPoolExecutor(1, thread_name_prefix="export")
    blocks = _blocks(source, wanted)
    try:
        while block := await loop.run_in_executor(thread, next, blocks, b""):
            yield block
    finally:
        _exporting.discard(mark)
        thread.submit(blocks.close)
        thread.shutdown(wait=False)


def _blocks(source: Source, wanted: Filter) -> Generator[bytes]:
    rows = read_rows(source, wanted)
    for block in in_blocks(rows):
        yield json_lines(block)


def _filter(view: View) -> Filter:
    """Raises OwnerError."""
    given = {name: view.query(name).strip() for name in _FILTERS}
    if any(len(value) > MAX_VALUE for value in given.values()):
        raise OwnerError("invalid_filter", f"A filter has at most {MAX_VALUE:,} characters.")
    if given["kind"] and given["kind"] not in KINDS:
        raise OwnerError("invalid_filter", f"There is no kind `{given['kind'][:40]}`; known are {', '.join(KINDS)}.")
    if given["outcome"] and given["outcome"] not in (*ENDINGS, UNDER_WAY):
        raise OwnerError("invalid_filter", f"There is no outcome `{given['outcome'][:40]}`.")
    return Filter(
        since_ms=_moment(given["since"], "since"),
        until_ms=_moment(given["until"], "until"),
        token=given["token"] or None,
        project=given["project"] or None,
        tool_key=given["tool"] or None,
        server_id=given["server"] or None,
        kind=given["kind"] or None,
        outcome="" if given["outcome"] == UNDER_WAY else given["outcome"] or None,
        code=given["code"] or None,
        text=given["text"] or None,
    )


def _moment(text: str, name: str) -> int | None:
    """Milliseconds since the epoch of `2026-06-15T12:00`, which is UTC, or of `90m`, `12h` or `7d` ago."""
    if not text:
        return None
    if ago := _AGO.fullmatch(text):
        return max(int((time.time() - int(ago[1]) * _UNIT_S[ago[2]]) * 1000), 0)
    try:
        moment = datetime.fromisoformat(text)
        return max(int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000), 0)
    except (ValueError, OverflowError):
        example = "such as `2026-06-15T12:00` (UTC), or `12h` for twelve hours ago"
        raise OwnerError("invalid_filter", f"`{name}` is not a time: write it {example}.") from None


async def _rows(parts: Parts, _: str) -> object:
    rows = parts.audit_rows
    shared = None if isinstance(rows, Path) else rows.shared
    return parts.audit.position, None if shared is None else shared.seen


SCREEN = Screen(
    name="activity",
    title="Activity",
    icon="activity",
    path="/page/activity",
    routes=[
        ("GET", "/page/activity", show),
        ("GET", "/page/activity/export", export),
        ("GET", "/page/activity/{seq}", one),
    ],
    topics={"audit": _rows},
)
