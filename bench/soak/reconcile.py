"""Compares what clients received, what servers executed and what the audit recorded. Pure: no I/O, no clock."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from pointsman.router.audit.rows import Row

ID = re.compile(r"id\d{8}")
EXECUTED = frozenset({"tools/call", "resources/read", "prompts/get", "completion/complete"})
NOT_BEGUN = frozenset({"unknown_resource", "unknown_prompt"})  # rows of reads that led to no server, without arguments
REFUSED = "rate_limited"

Status = Literal["ok", "error", "refused", "left"]


@dataclass(frozen=True, slots=True)
class Sent:
    """One request of a client and how it ended there."""

    id: str
    method: str
    status: Status  # refused: over a limit, nothing may have run; left: the client did not wait for the answer
    code: str = ""
    logged: bool = True  # whether a server logs that it executed this


def reconcile(sent: Iterable[Sent], executed: Mapping[str, int], rows: Iterable[Row]) -> list[str]:
    """List the contradictions, one sentence each; empty when there are none. `executed` counts executions by id."""
    by_request: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
    not_begun: Counter[str] = Counter()
    problems: list[str] = []
    for row in rows:
        if row.outcome is None:
            problems.append(f"row {row.seq} ({row.method}) has no outcome")
        found = _id_of(row)
        if found is not None:
            by_request[found, row.method].append(row)
        elif row.code in NOT_BEGUN:
            not_begun[row.method] += 1
    requests = list(sent)
    for one in requests:
        problems += _check(one, by_request[one.id, one.method], executed.get(one.id, 0), not_begun)
    known = {one.id for one in requests}
    recorded = {request_id for (request_id, method), found in by_request.items() if found and method in EXECUTED}
    for request_id, count in executed.items():
        if request_id not in recorded:
            problems.append(f"{request_id} was executed {count} times without a row")
        if request_id not in known:
            problems.append(f"{request_id} was executed, but no client sent it")
    problems += [
        f"{count} rows of {method} say that nothing was found, and no client heard so"
        for method, count in not_begun.items()
        if count > 0
    ]
    return problems


def _check(one: Sent, rows: list[Row], executions: int, not_begun: Counter[str]) -> Iterator[str]:
    what = f"{one.id} ({one.method}, {one.status} {one.code})".replace(" )", ")")
    if executions > 1:
        yield f"{what} was executed {executions} times"
    if one.status == "refused":
        if executions:
            yield f"{what} was refused and executed all the same"
        if any(row.code != REFUSED for row in rows):
            yield f"{what} was refused, but its row says {_said(rows)}"
    elif one.status == "error" and not rows and not_begun[one.method] > 0:
        not_begun[one.method] -= 1
    elif one.status == "left" and not rows and not executions:
        return  # it may have left before the request was read
    elif len(rows) != 1:
        yield f"{what} has {len(rows)} rows"
    else:
        yield from _compare(what, one, rows[0], executions)


def _compare(what: str, one: Sent, row: Row, executions: int) -> Iterator[str]:
    """A request with one row."""
    expected = {"ok": ("ok",), "error": ("error", "denied", "timeout")}.get(one.status)
    same_code = one.status != "error" or one.method != "tools/call" or row.code == one.code
    if (expected is not None and row.outcome not in expected) or not same_code:
        yield f"{what} has a row that says {_said([row])}"
    if one.status == "ok" and one.method in EXECUTED and one.logged and executions != 1:
        yield f"{what} was acknowledged and executed {executions} times"


def _said(rows: list[Row]) -> str:
    return ", ".join(f"{row.outcome} {row.code or ''}".strip() for row in rows)


def _id_of(row: Row) -> str | None:
    given = row.queries if row.kind == "discovery" else row.arguments
    if given is None or given is msgspec.UNSET:
        return None
    found = ID.search(str(given))
    return found[0] if found else None
