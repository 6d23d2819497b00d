"""The discovery lab: what a model would get for a query, what was left out and why, and the queries that are kept."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from starlette.responses import Response

from pointsman.catalog.rights import OWNER_ID
from pointsman.core.model import Caller, Json, ToolKey
from pointsman.router.gateway.meta_tools import MAX_QUERIES, MAX_RESULTS
from pointsman.router.owner.channel import OwnerError
from pointsman.router.owner.operations import replay_cases, servers
from pointsman.router.owner.parts import Parts
from pointsman.router.owner.search import lab
from pointsman.router.owner.search.kept_cases import (
    USUAL_FILE,
    WORST_RANK,
    Case,
    KeptCasesError,
    add_ranks,
    keep,
    read_kept,
)
from pointsman.router.owner.search.replay import MAX_CASES
from pointsman.router.page.registry import Screen
from pointsman.router.page.screens.tools import MAX_SHOWN
from pointsman.router.page.tool_form import pretty
from pointsman.router.page.view import CLIENT, View

MAX_TYPED = 20_000  # characters of a field, which is shown again
_NAMES = ("queries", "context", "token", "project", "search", "most", "expected")
_WHY = {
    "down": "The server is not ready",
    "permission": "Switched off by `tool_permissions`",
    "scope": "Outside the token's `scopes`; without `trust_annotations`, a server has only destructive tools",
    "token_tools": "Left out by `tools` of the token",
    "project_tools": "Left out by `tools` of the project",
    "off": "Discovery is switched off for this project",
    "expired": "The token has expired",
    "disabled": "The server is switched off",
    "token": "There is no such token",
    "project": "The token does not include this project",
    "server": "There is no such server",
    "token_servers": "The token does not name the server",
    "server_projects": "The server does not belong to this project",
    "apps": "For apps only; no model sees it",
    "below": "Found, but below the cut",
    "unmatched": f"Nothing in it matches, or it is not among the first {MAX_RESULTS}",
}


async def show(view: View) -> Response:
    """The form, with what the address says. It searches only when it is sent."""
    return _rendered(view, {name: view.query(name)[:MAX_TYPED] for name in _NAMES})


async def search(view: View) -> Response:
    parts, typed = view.parts, {name: view.field(name) for name in _NAMES}
    if any(len(text) > MAX_TYPED for text in typed.values()):
        raise OwnerError(
            "invalid_request", f"A field has more than {MAX_TYPED:,} characters. A model asks in a sentence."
        )
    try:
        caller = lab.caller_of(parts, typed["token"], typed["project"])
        asked = lab.read_request(_lines(typed["queries"]), typed["context"], _most(typed["most"]))
        compared = lab.searches(parts) if view.field("compare") else []
        finding, columns = await lab.find(parts, caller, asked, typed["search"], compared, CLIENT)
    except OwnerError as error:
        return _rendered(view, typed, problem=str(error), http_status=400)
    reasons = {one["id"]: one["reason"] for one in (await servers(parts, at_once=True))["servers"]}
    return _rendered(
        view,
        typed,
        finding=finding,
        columns=columns,
        compared=_side_by_side(columns),
        reasons=reasons,
        answer=_clipped(pretty(finding.answer)),
        verdict=_verdict(finding, typed["expected"]),
        refused=_refused(parts, caller),
    )


def _rendered(
    view: View,
    typed: Json,
    *,
    problem: str = "",
    http_status: int = 200,
    finding: lab.Finding | None = None,
    **more: object,
) -> Response:
    config = view.parts.current.config
    return view.render(
        "lab.html",
        http_status,
        typed=typed,
        problem=problem,
        finding=finding,
        tokens=list(config.tokens),
        projects=list(config.projects),
        searches=lab.searches(view.parts),
        compare=bool(view.field("compare")),
        why=_WHY,
        file=USUAL_FILE,
        **more,
    )


def _lines(text: str) -> list[str]:
    """One query a line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise OwnerError("invalid_request", "Type what a model would ask for, such as `read a text file`.")
    if len(lines) > MAX_QUERIES:
        raise OwnerError("invalid_request", f"At most {MAX_QUERIES} queries are taken at once, one on each line.")
    return lines


def _most(text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 9):
        raise OwnerError("invalid_request", f"The number of results must be a whole number from 1 to {MAX_RESULTS}.")
    return int(text)


def _side_by_side(columns: Sequence[lab.Column]) -> list[str]:
    """The tools that any search has among its first, by their best rank."""
    best: dict[str, int] = {}
    for column in columns:
        for key, (rank, _) in column.ranks.items():
            best[key] = min(rank, best.get(key, rank))
    return sorted(best, key=lambda key: best[key])


def _verdict(finding: lab.Finding, expected: str) -> Json | None:
    """What became of the tool that the person expects."""
    if not expected:
        return None
    rank = next((one.rank for one in finding.ranked if one.key == expected), None)
    if rank is not None:
        return {"kind": "ok", "text": f"`{expected}` is number {rank} of {len(finding.ranked)}."}
    why = finding.why.get(expected)
    if why is None:
        text = "No server has listed a tool of this key: check its spelling, and whether its server is ready."
        return {"kind": "bad", "text": f"`{expected}` is not known. {text}"}
    below = next((one for one in finding.below if one.key == expected), None)
    where = f" It is number {below.rank}, with a relevance of {below.relevance:.2f}." if below is not None else ""
    return {"kind": "warn" if below else "bad", "text": f"`{expected}` is left out. {_WHY[why]}.{where}"}


def _refused(parts: Parts, caller: Caller) -> str:
    """Why a client would not get an answer at all."""
    if caller.token_id == OWNER_ID or parts.catalog.still_valid(caller):
        flat = parts.catalog.rights.is_flat(caller)
        return "This project exposes all tools by name, so a model there does not search." if flat else ""
    where = "use no project" if caller.project_id is None else f"act for project `{caller.project_id}`"
    return f"A client with this token is refused: it has expired, or may not {where}."


def _clipped(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}\n… {len(text) - MAX_SHOWN:,} more characters"


# ------------------------------------------------------------------ kept queries


async def keep_query(view: View) -> Response:
    parts = view.parts
    lab.caller_of(parts, "", view.field("project"))
    expected, worst = view.field("expected"), view.field("worst") or "1"
    if ToolKey.parse(expected) is None:
        raise OwnerError("invalid_request", "Name the tool that must be found by its key, such as `files:read_file`.")
    if not (worst.isascii() and worst.isdecimal() and len(worst) < 4 and 1 <= int(worst) <= WORST_RANK):
        raise OwnerError("invalid_request", f"The worst rank must be a whole number from 1 to {WORST_RANK}.")
    queries, context = _lines(view.field("queries")), view.field("context") or None
    case = Case(queries, [expected], int(worst), context, view.field("project") or None)
    try:
        number = await asyncio.to_thread(keep, _file(parts), case)
    except KeptCasesError as error:
        raise OwnerError("not_kept", str(error)) from None
    parts.audit.record_change("lab/keep", USUAL_FILE, client=CLIENT)
    return view.done(f"Kept as entry {number} of `{USUAL_FILE}`.", f"/page/lab/kept?page={-(-number // MAX_CASES)}")


async def kept(view: View) -> Response:
    """The kept queries; a POST ranks those of the page anew, which records nothing."""
    parts, page = view.parts, view.number("page", 1)
    problem, cases = "", []
    try:
        cases = await asyncio.to_thread(read_kept, _file(parts))
    except KeptCasesError as error:
        problem = str(error) if _file(parts).exists() else ""
    shown = cases[(page - 1) * MAX_CASES : page * MAX_CASES]
    ranked = view.request.method == "POST" and bool(shown)
    if ranked:
        answer = await replay_cases(parts, [case.asked() for case in shown], [])
        add_ranks(shown, answer["cases"], answer["away"])
    return view.render(
        "kept.html",
        cases=shown,
        first=(page - 1) * MAX_CASES + 1,
        total=len(cases),
        page=page,
        more=len(cases) > page * MAX_CASES,
        problem=problem,
        ranked=ranked,
        missed=sum(case.missed for case in shown if case.ranks),
        gone=sum(not case.ranks for case in shown) if ranked else 0,
        file=USUAL_FILE,
    )


def _file(parts: Parts) -> Path:
    return parts.config_path.absolute().with_name(USUAL_FILE)


SCREEN = Screen(
    name="lab",
    title="Discovery lab",
    icon="lab",
    path="/page/lab",
    routes=[
        ("GET", "/page/lab", show),
        ("POST", "/page/lab", search),
        ("POST", "/page/lab/keep", keep_query),
        ("GET", "/page/lab/kept", kept),
        ("POST", "/page/lab/kept", kept),
    ],
)
