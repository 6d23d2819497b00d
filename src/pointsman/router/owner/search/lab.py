"""The discovery lab: what a search of any caller finds, and what it leaves out and why.

It searches with the caller's rights, tools, project and strategy, and changes nothing of the caller's: no usage is
learned, no context is counted, and the audit row is the owner's (token `@owner`, method `lab/search`; the code names
the token whose view it was, such as `tokens.laptop`).
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pointsman.catalog.answer import render_answer
from pointsman.catalog.results import SearchOutcome, SearchResult, fallback_notice
from pointsman.catalog.rights import OWNER_ID, Denial
from pointsman.config.model import Strategy
from pointsman.core.errors import GatewayError, InvalidArgumentsError
from pointsman.core.model import Caller, Json, ToolKey
from pointsman.core.seams import Client, FrontRequest
from pointsman.providers.base import SearchHit, SearchProvider, SearchRequest
from pointsman.providers.bm25.provider import WITH_MEANING, WITH_SENTENCES, WORDS_ALONE
from pointsman.providers.semantic.encoder import EncoderUnavailableError
from pointsman.router.gateway.discover import DiscoveryArguments, read_discovery
from pointsman.router.gateway.meta_tools import MAX_RESULTS
from pointsman.router.gateway.results import structured
from pointsman.router.owner.channel import OwnerError
from pointsman.router.owner.parts import Parts
from pointsman.router.owner.savings import CHARS_PER_TOKEN
from pointsman.router.owner.search.replay import provider_of

IN_USE = ""  # the search that the caller's project uses
MAX_EXAMPLES = 5  # names of tools for each reason and server
MAX_GROUPS = 200
COMPARED = 10  # results of each search
_LOCAL: Strategy = "bm25"
_MISSING = ("starting", "failed", "timeout", "sign-in")

Why = Denial | Literal["expired", "disabled", "down", "apps", "off", "below", "unmatched"]
"""Why a tool is not in an answer: its caller's rights, an expired token, a server that is switched off or not ready, a
tool for apps only, discovery that is switched off, a rank behind the last result, or no match among the first 100."""


@dataclass(frozen=True, slots=True)
class Ranked:
    rank: int
    key: str
    relevance: float
    words: str | None  # which words matched where
    semantic_share: float | None
    note: str | None  # the explanation that the model reads
    intents: tuple[int, ...]


@dataclass(slots=True)
class LeftOut:
    """The tools of one server that are left out for one reason."""

    why: Why
    server_id: str
    count: int | None = 0  # None: the server has not listed its tools
    names: list[str] = field(default_factory=list)

    @property
    def place(self) -> int:
        """In the order of the reasons, what can be mended first."""
        return _ORDER.index(self.why)


@dataclass(frozen=True, slots=True)
class Finding:
    asked: DiscoveryArguments
    outcome: SearchOutcome
    answer: Json  # what the model gets
    answer_chars: int
    ranked: list[Ranked]
    below: list[Ranked]
    left_out: list[LeftOut]
    groups_omitted: int
    why: Mapping[str, Why]  # by tool key, for all tools that are known
    ms: float

    @property
    def answer_tokens(self) -> int:
        return -(-self.answer_chars // CHARS_PER_TOKEN)


@dataclass(frozen=True, slots=True)
class Column:
    """The results of one search, beside those of others."""

    search: str
    provider: str  # that really ranked; empty: it could not
    problem: str
    ranks: Mapping[str, tuple[int, float]]  # rank and relevance by tool key
    ms: float


def searches(parts: Parts) -> list[str]:
    """The searches that can be chosen here, by the names that audit rows have for them."""
    config = parts.current.config
    sentences = [WITH_SENTENCES] if config.search.semantic else []
    return [WORDS_ALONE, WITH_MEANING, *sentences, *(["cloud"] if config.cloud_search is not None else [])]


def caller_of(parts: Parts, token_id: str, project_id: str) -> Caller:
    """The caller with this token, empty for the owner, in this project, empty for none. Raises OwnerError."""
    config = parts.current.config
    if token_id and parts.catalog.rights.token_of(token_id) is None:
        raise OwnerError("unknown_token", f"There is no token `{token_id[:64]}`. `pointsman token list` shows them.")
    if project_id and project_id not in config.projects:
        raise OwnerError("unknown_project", f"There is no project `{project_id[:64]}`.")
    return Caller(token_id or OWNER_ID, project_id or None)


def read_request(queries: Sequence[str], context: str, max_results: int | None) -> DiscoveryArguments:
    """Raises OwnerError."""
    try:
        return read_discovery({"query": list(queries), "context": context or None, "maxResults": max_results})
    except InvalidArgumentsError as error:
        raise OwnerError("invalid_request", str(error)) from None


async def find(
    parts: Parts, caller: Caller, asked: DiscoveryArguments, search: str, compared: Sequence[str], asked_by: str
) -> tuple[Finding, list[Column]]:
    """Search as the caller would, by the search in use or another one, and also by those to compare with.

    One audit row of the owner's. Raises OwnerError.
    """
    for name in (search, *compared):
        if name and name not in searches(parts):
            raise OwnerError("invalid_request", f"There is no search `{name[:40]}` here.")
    client = Client(asked_by, "legacy", "2025-11-25", {}, None, None)
    request = FrontRequest(secrets.token_hex(8), "lab/search", {}, Caller(OWNER_ID, caller.project_id), client)
    code = None if caller.token_id == OWNER_ID else f"tokens.{caller.token_id}"
    try:
        with parts.audit.begin(request, "discovery", queries=asked.queries) as record:
            finding = await _find(parts, caller, asked, search, request.id)
            columns = [await _column(parts, caller, asked, name) for name in compared]
            found = finding.outcome
            record.finish(
                *("ok", code),
                results=len(found.results),
                bytes=len(json.dumps(finding.answer)),
                provider=found.provider,
                fallback=found.fallback,
            )
    except GatewayError as error:
        raise OwnerError(error.code, str(error)) from None
    except EncoderUnavailableError as error:
        raise OwnerError("encoder_unavailable", str(error)) from None
    return finding, columns


async def _find(parts: Parts, caller: Caller, asked: DiscoveryArguments, search: str, request_id: str) -> Finding:
    began = time.perf_counter()
    if search == IN_USE:
        outcome = await parts.catalog.search(
            *(caller, asked.queries, asked.context, asked.max_results),
            least_each=asked.least_each,
            request_id=request_id,
        )
        hits: Sequence[SearchHit] = ()
    else:
        outcome, hits = await _other_search(parts, caller, asked, search)
    ms = (time.perf_counter() - began) * 1000
    all_results = outcome.results
    if outcome.provider is not None and outcome.provider != "cloud":  # a service is asked once
        ranking, all_results = await parts.catalog.trial(
            caller, _request(asked, MAX_RESULTS, explain=True), _LOCAL if search == IN_USE else _provider(parts, search)
        )
        hits = ranking.hits
    details = {hit.tool_key: hit for hit in hits}
    shown = structured(render_answer(outcome))
    ranked = [_ranked(rank, result, details) for rank, result in enumerate(outcome.results, 1)]
    keys = {one.key for one in ranked}
    others = [_ranked(rank, result, details) for rank, result in enumerate(all_results, 1)]
    below = [one for one in others if one.key not in keys]
    switched_off = outcome.provider is None
    why = await _reasons(parts, caller, keys, {one.key for one in below}, switched_off)
    groups = list(_grouped(why))
    return Finding(
        asked,
        outcome,
        shown["structuredContent"],
        len(shown["content"][0]["text"]),
        ranked,
        below,
        groups[:MAX_GROUPS],
        max(len(groups) - MAX_GROUPS, 0),
        {str(ToolKey(server_id, name)): reason for (server_id, name), reason in why.items() if name is not None},
        ms,
    )


async def _other_search(
    parts: Parts, caller: Caller, asked: DiscoveryArguments, search: str
) -> tuple[SearchOutcome, Sequence[SearchHit]]:
    ranking, results = await parts.catalog.trial(
        caller, _request(asked, asked.max_results, explain=True), _provider(parts, search)
    )
    unavailable = ranking.unavailable
    notice = fallback_notice(str(unavailable)) if unavailable is not None else None
    code = unavailable.code if unavailable is not None else None
    return SearchOutcome(results, notice, ranking.provider, unavailable is not None, code), ranking.hits


async def _column(parts: Parts, caller: Caller, asked: DiscoveryArguments, search: str) -> Column:
    began = time.perf_counter()
    try:
        request = _request(asked, COMPARED, explain=False)
        ranking, results = await parts.catalog.trial(caller, request, _provider(parts, search))
    except EncoderUnavailableError as error:
        return Column(search, "", str(error), {}, 0.0)
    ms = (time.perf_counter() - began) * 1000
    problem = "" if ranking.unavailable is None else fallback_notice(str(ranking.unavailable))
    ranks = {one.tool.document.tool_key: (rank, one.relevance) for rank, one in enumerate(results, 1)}
    return Column(search, ranking.provider, problem, ranks, ms)


def _request(asked: DiscoveryArguments, max_results: int, *, explain: bool) -> SearchRequest:
    least_each = asked.least_each if len(asked.queries) > 1 else 1
    return SearchRequest(asked.queries, asked.context, (), max_results, explain=explain, least_each=least_each)


_kept_providers: dict[tuple[Path, str], SearchProvider | Strategy] = {}  # with their indexes, by the state folder


def _provider(parts: Parts, search: str) -> SearchProvider | Strategy:
    """The one in use where that ranks in the same way: its index of all tools is there already."""
    settings = parts.current.config.search
    local = WORDS_ALONE if not settings.embeddings else WITH_SENTENCES if settings.semantic else WITH_MEANING
    if search == local:
        return _LOCAL
    if search not in (WORDS_ALONE, WITH_MEANING):
        return provider_of(search, parts.current.config, parts.state_dir)
    key = (parts.state_dir, search)
    if key not in _kept_providers:
        _kept_providers[key] = provider_of(search, parts.current.config, parts.state_dir)
    return _kept_providers[key]


def _ranked(rank: int, result: SearchResult, details: Mapping[str, SearchHit]) -> Ranked:
    key = result.tool.document.tool_key
    hit = details.get(key)
    words, share = (hit.explanation, hit.semantic_share) if hit is not None else (None, None)
    return Ranked(rank, key, result.relevance, words, share, result.explanation, result.intents)


async def _reasons(
    parts: Parts, caller: Caller, shown: AbstractSet[str], below: AbstractSet[str], switched_off: bool
) -> dict[tuple[str, str | None], Why]:
    """Why each known tool is left out, by server and name; None stands for a server whose tools are not known."""
    gaps = (await parts.catalog.collected(caller)).gaps
    reasons: dict[tuple[str, str | None], Why] = {}
    for server_id in parts.current.config.servers:
        last = parts.catalog.last_list(server_id)
        of_server = _why_server(parts, caller, server_id, missing=gaps.get(server_id) in _MISSING)
        if last is None:
            if of_server is not None:
                reasons[server_id, None] = of_server
            continue
        for name, tool in last.items.items():
            key = tool.document.tool_key
            why = of_server or parts.catalog.rights.why_not(caller, server_id, name, tool.claimed)
            if why is None and tool.for_apps_only:
                why = "apps"
            elif why is None and switched_off:
                why = "off"
            elif why is None and key not in shown:
                why = "below" if key in below else "unmatched"
            if why is not None:
                reasons[server_id, name] = why
    return reasons


def _why_server(parts: Parts, caller: Caller, server_id: str, *, missing: bool) -> Why | None:
    """Why no tool of a server is found."""
    rights = parts.catalog.rights
    if not rights.may_use_server(caller, server_id):
        return rights.why_not(caller, server_id, "", "read")
    if not parts.catalog.still_valid(caller):
        return "expired"
    if not parts.current.config.servers[server_id].enabled:
        return "disabled"
    if server_id not in rights.tool_servers(caller):  # the same reason for all of its tools
        return rights.why_not(caller, server_id, "", "read")
    return "down" if missing else None


_ORDER: tuple[Why, ...] = (
    *(
        "down",
        "permission",
        "scope",
        "token_tools",
        "project_tools",
        "off",
        "expired",
        "disabled",
        "token",
        "project",
        "server",
        "token_servers",
    ),
    *("server_projects", "apps", "below", "unmatched"),
)


def _grouped(reasons: Mapping[tuple[str, str | None], Why]) -> Iterator[LeftOut]:
    """By reason, and by server."""
    groups: dict[tuple[Why, str], LeftOut] = {}
    for (server_id, name), why in reasons.items():
        group = groups.setdefault((why, server_id), LeftOut(why, server_id))
        if name is None:
            group.count = None
        elif group.count is not None:
            group.count += 1
            if len(group.names) < MAX_EXAMPLES:
                group.names.append(name)
    yield from sorted(groups.values(), key=lambda group: group.place)
