"""The result of a search: which hits are accepted, how usage reorders them, and the notices for the model."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain

from msgspec import Struct, field
from msgspec.structs import replace

from pointsman.catalog.definitions import KnownTool
from pointsman.catalog.effects import Effect
from pointsman.catalog.lists.cached_list import Snapshot
from pointsman.catalog.lists.list_cache import Gap
from pointsman.providers.base import SearchHit, SearchHits
from pointsman.providers.bm25.values import without_values
from pointsman.providers.fallback import Ranking
from pointsman.providers.text import foreign_script, tokens

DOUBTFUL = 0.33  # a relevance below this probably does not fit
NEGLIGIBLE = 0.01  # if all are below this, as for a log without a request, few results are shown
FEW_RESULTS = 3
LONG_QUERY = 1_000  # characters

# The most that usage can be worth, in log odds of the relevance: .40 can pass .50, and .70 can pass .79, but no more.
MAX_LIFT = 0.5
EXTRA_CANDIDATES = 10  # results beyond those requested that usage may still move up
USAGE_NOTE = "chosen before for such requests"
_MAX_RELEVANCE = 0.98  # for the log odds, which are unbounded at 1

UsageFigures = Callable[[str | None, Sequence[str]], Mapping[str, float]]
"""For a project and its queries: by tool key, from 0 to 1, how regularly it was chosen for such requests."""

NOTHING_FITS = "No tool seems to fit. Try other words, with one query for each step of the task."
SAY_WHAT = "Of a long text, such as a log, say in one sentence what should be done with it."
EMPTY_QUERY = "The query is empty. Say in a few words what should be done."
NOT_ENGLISH = "Most of these words seem not to be English: ask again in English."
NO_TOOLS = "There are no tools that you can use here"
MAX_NAMED_SERVERS = 20  # in one sentence, for the model reads it with every answer
MAX_NAMED_PROJECTS = 10
MAX_NAMED_QUERIES = 10
_MISSING = "so their tools are missing: {}."
_OPERATOR = "the operator finds the reason with `pointsman doctor`."
_GAP_NOTICES: Mapping[Gap, str] = {
    "starting": f"These servers are still starting, {_MISSING} Ask again in a few seconds; {_OPERATOR}",
    "failed": f"These servers do not work at the moment, {_MISSING} Use other tools; {_OPERATOR}",
    "sign-in": f"These servers need sign-in, {_MISSING} Use other tools; "
    "the operator signs in with `pointsman server login NAME`.",
    "timeout": f"These servers did not list their tools in time, {_MISSING} Ask again later; {_OPERATOR}",
    "restarting": "These servers are restarting, and their tools are those of the last list: {}. "
    "Call a tool as usual: the call waits until its server is back.",
    "cut": "These servers have more tools than the gateway lists, so only the first of them were searched: {}. "
    "If none fits, use other tools; the operator can make the server list fewer.",
    "unreadable": "These servers have tools whose names contain invisible characters, which are left out: {}. "
    "Use other tools; the operator finds the names in the gateway's log.",
}
_NO_LIST: frozenset[Gap | None] = frozenset(("starting", "failed", "timeout", "sign-in"))


class Available(Struct, frozen=True):
    """The Available Tool List of one caller."""

    tools: tuple[KnownTool, ...]
    gaps: Mapping[str, Gap] = field(default_factory=dict)  # servers whose tools are missing, and why
    # By server, how many tools were changed and wait for approval, and how many others wait.
    held: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()  # of these: it is not known what was approved

    @property
    def notices(self) -> tuple[str, ...]:
        waiting = {one: counts for one, counts in self.held.items() if one not in self.unread}
        return (*gap_notices(self.gaps), *held_notices(waiting), *unread_notices(sorted(self.unread)))


class SearchResult(Struct, frozen=True):
    """One tool that a search found."""

    tool: KnownTool
    relevance: float
    explanation: str | None
    # Which of several queries it serves; empty: none of them, there was only one, or the provider does not say.
    intents: tuple[int, ...] = ()
    fits: tuple[float, ...] = ()  # its relevance for each of them; empty: the provider does not say

    def fit(self, query: int) -> float:
        """Its relevance for a query that it serves."""
        return self.fits[self.intents.index(query)] if self.fits else self.relevance


class SearchOutcome(Struct, frozen=True):
    results: tuple[SearchResult, ...]
    notice: str | None
    provider: str | None  # as in the audit row; None: nothing was searched
    fallback: bool
    code: str | None = None  # as in the audit row: why the local provider had to answer
    more: str | None = None  # the other tools of the best result's server


def outcome_of(
    results: tuple[SearchResult, ...],
    ranking: Ranking,
    available: Available,
    queries: Sequence[str],
    why_no_tools: str | None,
) -> SearchOutcome:
    """The outcome of a search, with its notice: what is missing, how well the results fit, and who ranked them."""
    results = worth_showing(results, ranking.hits, len(queries))
    script, fit = None, why_no_tools
    if available.tools:
        script = script_notice(results, available.tools, queries)
        fit = fit_notice(results, ranking.hits, queries, in_script=script is None)
    unavailable = ranking.unavailable
    fallback = fallback_notice(str(unavailable)) if unavailable is not None else None
    notice = " ".join(filter(None, (*available.notices, fit, script, fallback))) or None
    code = unavailable.code if unavailable is not None else None
    more = more_tools(results, available.tools)
    return SearchOutcome(results, notice, ranking.provider, unavailable is not None, code, more)


def accept_hits(
    tools: Iterable[KnownTool], hits: Iterable[SearchHit], max_results: int, queries: Sequence[str]
) -> tuple[SearchResult, ...]:
    """Keep only tools that were offered, each once, with figures in bounds: the provider may be a foreign service."""
    by_key = {tool.document.tool_key: tool for tool in tools}
    asked: frozenset[str] | None = None
    results: list[SearchResult] = []
    for hit in hits:
        tool = by_key.pop(hit.tool_key, None)
        if tool is None:
            continue
        explanation = hit.explanation
        if explanation:
            asked = frozenset(tokens(" ".join(queries))) if asked is None else asked
            explanation = None if asked.issuperset(set(tokens(explanation)) - _places()) else explanation
        results.append(SearchResult(tool, _bounded(hit.relevance), explanation, *_served(hit, len(queries))))
        if len(results) == max_results:
            break
    return tuple(results)


def worth_showing(
    results: tuple[SearchResult, ...], hits: Sequence[SearchHit], queries: int
) -> tuple[SearchResult, ...]:
    """The results, but only a few if the local search found nothing that fits at all; one for each query is shown."""
    local = isinstance(hits, SearchHits)  # a service may have a scale of its own
    if local and all(result.relevance < NEGLIGIBLE for result in results):
        return results[: max(FEW_RESULTS, queries)]
    return results


@cache
def _places() -> frozenset[str]:
    """Where a word of the query was found, as the local search explains its hits: that repeats the query."""
    return frozenset(tokens("name server description parameter similar meaning"))


def _served(hit: SearchHit, queries: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The queries that a hit serves, if there are several, and its relevance for each: the one that it fits best first.

    If the relevance for each is not known, they are in the order of the request.
    """
    if queries == 1:
        return (), ()
    known = len(hit.fits) == len(hit.intents)
    fits = dict(zip(hit.intents, hit.fits if known else (0.0 for _ in hit.intents), strict=True))
    served = sorted(
        (index for index in fits if 0 <= index < queries), key=lambda index: (-_bounded(fits[index]), index)
    )
    return tuple(served), tuple(_bounded(fits[index]) for index in served) if known else ()


def _bounded(relevance: float) -> float:
    return min(max(relevance, 0.0), 1.0) if relevance == relevance else 0.0  # NaN


def best_of_each_first(results: Sequence[SearchResult]) -> tuple[SearchResult, ...]:
    """The best result for each of several queries before all others; both in the order that they had."""
    leaders = leading(results)
    order = sorted(range(len(results)), key=lambda place: place not in leaders)
    return tuple([results[place] for place in order])


def leading(results: Sequence[SearchResult]) -> frozenset[int]:
    """The places of the best result for each query, where there are several queries."""
    best: dict[int, tuple[float, int]] = {}
    for place, result in enumerate(results):
        for query in result.intents:
            fit = result.fit(query)
            if query not in best or fit > best[query][0]:
                best[query] = (fit, place)
    return frozenset(place for _, place in best.values())


def no_usage(project_id: str | None, queries: Sequence[str]) -> Mapping[str, float]:
    return {}


def rank_by_usage(results: Sequence[SearchResult], figures: Mapping[str, float]) -> tuple[SearchResult, ...]:
    """Move up what a project chose before for such requests, a little and never past a plainly better match.

    A result that moved up says so in its explanation. The relevance does not change.
    """
    order: list[SearchResult] = []
    for result in results:
        lift = _lift(result, figures)
        place = len(order)
        while lift and place and _odds(result) + lift > _odds(order[place - 1]) + _lift(order[place - 1], figures):
            place -= 1
        moved = place < len(order)
        order.insert(place, replace(result, explanation=_noted(result.explanation)) if moved else result)
    return tuple(order)


def _lift(result: SearchResult, figures: Mapping[str, float]) -> float:
    if result.relevance < DOUBTFUL:
        return 0.0  # popularity does not make a tool fit
    figure = figures.get(result.tool.document.tool_key, 0.0)
    return MAX_LIFT * min(max(figure, 0.0), 1.0) if figure == figure else 0.0  # NaN


def _odds(result: SearchResult) -> float:
    relevance = min(max(result.relevance, 1 - _MAX_RELEVANCE), _MAX_RELEVANCE)
    return math.log(relevance / (1 - relevance))


def _noted(explanation: str | None) -> str:
    return f"{USAGE_NOTE}; {explanation}" if explanation else USAGE_NOTE


def gap_notices(gaps: Mapping[str, Gap]) -> tuple[str, ...]:
    """One sentence for each kind of gap, naming its servers."""
    if not gaps:
        return ()
    by_kind: dict[Gap, list[str]] = {kind: [] for kind in _GAP_NOTICES}
    for server_id, kind in gaps.items():
        by_kind[kind].append(server_id)
    return tuple(_GAP_NOTICES[kind].format(_name_servers(servers)) for kind, servers in by_kind.items() if servers)


def fit_notice(
    results: Sequence[SearchResult], hits: Sequence[SearchHit], asked: Sequence[str], *, in_script: bool = True
) -> str | None:
    """The notice if nothing fits, or nothing fits one of several queries, or what fits it had no room.

    `in_script`: the queries are in the script of the tools; if not, another notice asks for English.
    """
    queries = len(asked)
    if not any(query.strip() for query in asked):
        return EMPTY_QUERY
    fitting = [result for result in results if result.relevance >= DOUBTFUL]
    if not fitting:
        foreign = in_script and isinstance(hits, SearchHits) and hits.foreign
        is_long = any(len(query) > LONG_QUERY for query in asked)
        return " ".join((NOTHING_FITS, *([NOT_ENGLISH] if foreign else ()), *([SAY_WHAT] if is_long else ())))
    if queries == 1:
        return None
    shown = {index for result in fitting for index in result.intents}
    if not shown:  # the provider does not tell the queries apart
        return None
    best = hits.best_by_query if isinstance(hits, SearchHits) and len(hits.best_by_query) == queries else None
    fits = {index for index in range(queries) if best[index] >= DOUBTFUL} if best else shown
    empty = [index for index, query in enumerate(asked) if not query.strip()]
    unfit = [index for index in range(queries) if index not in fits and index not in empty]
    hidden = sorted(fits - shown)
    notices: list[str] = []
    if empty:
        are = "is" if len(empty) == 1 else "are"
        notices.append(f"{_name_queries(empty)} {are} empty: say in a few words what should be done.")
    if unfit:
        notices.append(f"No tool seems to fit {_name_queries(unfit)}. Try other words for that.")
    if hidden:
        notices.append(
            f"There was no room for the tools that fit {_name_queries(hidden)}: "
            "raise `maxResults` or ask for that alone."
        )
    return " ".join(notices) or None


def script_notice(results: Sequence[SearchResult], tools: Sequence[KnownTool], queries: Sequence[str]) -> str | None:
    """The notice for queries in another script than that of the tools, which can hardly fit them."""
    foreign = [index for index, query in enumerate(queries) if _is_in_other_script(query, results, tools)]
    if not foreign:
        return None
    named = "The query" if len(queries) == 1 else _name_queries(foreign)
    are = "is" if len(foreign) == 1 else "are"
    return f"{named} {are} in another script than the descriptions of these tools. Ask again in English."


def _is_in_other_script(query: str, results: Sequence[SearchResult], tools: Sequence[KnownTool]) -> bool:
    """Whether no result has a letter of the script that most of a query is written in, nor has half of all tools.

    A catalog in the script of the query may lack the tool, but its language is not the reason.
    """
    script = None if query.isascii() else foreign_script(without_values(query))
    if script is None or any(_has_script(result.tool, script) for result in results):
        return False
    return 2 * sum(_has_script(tool, script) for tool in tools) < len(tools)


def _has_script(tool: KnownTool, script: re.Pattern[str]) -> bool:
    text = f"{tool.tool_name} {tool.document.description[:MAX_READ]}"
    return not text.isascii() and script.search(text) is not None


MAX_READ = 2_000  # characters of a description, to see its script
MAX_MORE_CHARS = 80  # of the names of further tools
FEW_TOOLS = 12  # a server with no more of them is named whole
_MORE_FROM = 0.66  # the relevance of the best result


def more_tools(results: Sequence[SearchResult], tools: Iterable[KnownTool]) -> str | None:
    """One line with the other tools of the best result's server, where they may be the next step.

    First those whose names share a word with the best one's, apart from words that most names of the server have; the
    others only if the server has few.
    """
    if not results or results[0].relevance < _MORE_FROM:
        return None
    best = results[0].tool
    own = _words(best.tool_name)
    in_common = {tool.tool_name: own & _words(tool.tool_name) for tool in tools if tool.server_id == best.server_id}
    counts = Counter(chain.from_iterable(in_common.values()))
    telling = frozenset(word for word in own if 2 * counts[word] <= len(in_common))
    shown = {result.tool.tool_name for result in results if result.tool.server_id == best.server_id}
    others = [name for name in in_common if name not in shown]
    related = [name for name in others if telling & in_common[name]]
    if len(others) <= FEW_TOOLS:
        related += [name for name in others if name not in related]
    return _list_names(best.server_id, related) if related else None


@lru_cache(maxsize=16_384)
def _words(name: str) -> frozenset[str]:
    return frozenset(tokens(name))


def _list_names(server_id: str, names: Sequence[str]) -> str:
    listed: list[str] = []
    room = MAX_MORE_CHARS
    for name in names:
        room -= len(name) + 2
        if room < 0:
            break
        listed.append(name)
    rest = len(names) - len(listed)
    return f"{server_id} also has {', '.join(listed)}{f' and {rest} more' if rest else ''}" if listed else ""


def held_tools(
    parts: Mapping[str, Snapshot[KnownTool]], permits: Callable[[str], Callable[[str, Effect], bool]]
) -> dict[str, tuple[int, int]]:
    """Count the tools that wait for approval and that a caller might use, even if they are destructive."""
    held: dict[str, tuple[int, int]] = {}
    for server_id, part in parts.items():
        if part.changed or part.unapproved:
            allowed = permits(server_id)
            changed, others = (
                sum(allowed(name, "destructive") for name in names) for names in (part.changed, part.unapproved)
            )
            if changed or others:
                held[server_id] = (changed, others)
    return held


def held_notices(held: Mapping[str, tuple[int, int]]) -> tuple[str, ...]:
    """Name the servers with tools that wait for approval, never the tools: their names are not approved either."""
    if not held:
        return ()
    clauses = [_held_clause(server_id, *counts) for server_id, counts in [*held.items()][:MAX_NAMED_SERVERS]]
    rest = len(held) - len(clauses)
    more = f"; and {rest} more servers have such tools" if rest else ""
    step = "the operator sees them with `pointsman pin diff` and approves them with `pointsman pin approve`"
    return (f"{'; '.join(clauses)}{more}. Use other tools; {step}.",)


def unread_notices(servers: Sequence[str]) -> tuple[str, ...]:
    """Name the servers of which nothing is offered while the pins cannot be read."""
    if not servers:
        return ()
    offer = "offers" if len(servers) == 1 else "offer"
    step = "the operator finds the reason with `pointsman doctor`"
    cause = "the gateway cannot read what was approved"
    return (f"{_name_servers(servers)} {offer} no tools at the moment: {cause}. Use other tools; {step}.",)


def _held_clause(server_id: str, changed: int, others: int) -> str:
    count = changed + others
    what, verb = ("tool", "waits") if count == 1 else ("tools", "wait")
    if not others:
        return f"{count} {what} of `{server_id}` changed and {verb} for approval"
    if not changed:
        return f"{count} {what} of `{server_id}` {verb} for approval"
    return f"{count} {what} of `{server_id}` are new or changed and {verb} for approval"


def switched_off_notice(project_id: str | None) -> str:
    where = "without a project" if project_id is None else f"in project `{project_id}`"
    return (
        f"Tool discovery is switched off {where} (`optimization: null`), so nothing was searched. A tool whose key you "
        "know can be run with tool_execute; the operator switches discovery on with `optimization: bm25`."
    )


def no_tools_notice(
    project_id: str | None,
    servers: Sequence[str],
    available: Available,
    projects: Sequence[str],
    other_projects: Sequence[str],
    *,
    untrusted: bool = False,
) -> str | None:
    """Why a caller has no tools, and what helps. `servers` are those that it may use.

    `untrusted`: its `scopes` leave out destructive tools, and all tools of some of the servers count as such.

    `projects` are those of its token, and `other_projects` those of them in which it may use a tool, but for its own.

    None where the notice about missing lists says it all: servers are still starting, or none has given a list.
    A tool that it may not use looks like one that does not exist, so the two have the same text.
    """
    where = "without a project" if project_id is None else f"in project `{project_id}`"
    gaps, held = available.gaps, available.held
    listed = [server_id for server_id in servers if gaps.get(server_id) not in _NO_LIST]
    if "starting" in gaps.values() or (servers and not listed):
        return None
    closed = [server_id for server_id in listed if server_id not in held]
    if servers and not closed:
        until = "before the operator approves those that wait" if set(listed) - available.unread else "at the moment"
        reason, step = f"{NO_TOOLS} {until}.", ""  # another notice says how
    elif servers:
        verb = "lists" if len(closed) == 1 else "list"
        reason = f"{NO_TOOLS}: {_name_servers(closed)} {verb} none that are open to you at the moment."
        trust = (
            "`trust_annotations` of the servers (without it, `scopes` open none of their tools), " if untrusted else ""
        )
        step = (
            f"The operator checks `tool_permissions`, `tools`, the token's `scopes`, {trust}and the servers with "
            "`pointsman doctor`."
        )
    else:
        home = "no `projects`" if project_id is None else f"`projects: [{project_id}]`"
        reason = f"{NO_TOOLS}: your token may use no server {where}."
        step = f"The operator must name servers in `servers` of the token, and give them {home}."
    if other_projects:
        named = _name_projects(f"/projects/{one}/mcp" for one in other_projects)
        return f"{reason} Your token has tools under {named}: connect there. {step}".rstrip()
    if not servers and set(projects) - {project_id}:
        return f"{reason} Its projects are {_name_projects(projects)}, and it may use no tool in any of them. {step}"
    return f"{reason} {step}".rstrip()


def fallback_notice(reason: str) -> str:
    """`reason` continues "the search service"."""
    return f"The local search answered, because the search service {reason}."


def _name_queries(queries: Sequence[int]) -> str:
    """Counted from 0, as `intents` does."""
    named = ", ".join(f"query[{index}]" for index in queries[:MAX_NAMED_QUERIES])
    more = len(queries) - MAX_NAMED_QUERIES
    return named if more <= 0 else f"{named} and {more} more"


def _name_projects(names: Iterable[str]) -> str:
    quoted = [f"`{name}`" for name in names]
    more = len(quoted) - MAX_NAMED_PROJECTS
    return ", ".join(quoted[:MAX_NAMED_PROJECTS]) + (f" and {more} more" if more > 0 else "")


def _name_servers(server_ids: Sequence[str]) -> str:
    named = ", ".join(f"`{server_id}`" for server_id in server_ids[:MAX_NAMED_SERVERS])
    more = len(server_ids) - MAX_NAMED_SERVERS
    return named if more <= 0 else f"{named} and {more} more"
