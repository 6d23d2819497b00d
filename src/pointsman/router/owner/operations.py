"""What the owner can ask of the running daemon, as plain functions over its parts: the channel and a page use them.

None of them takes a command or a secret, and none returns one: servers are added by an edit of the configuration file.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from pointsman import __version__
from pointsman.catalog.lists.cached_list import ListFailure
from pointsman.catalog.names import display_name
from pointsman.catalog.pins import is_unread
from pointsman.catalog.rights import OWNER_ID
from pointsman.config.errors import closest
from pointsman.config.secrets import mask_secrets
from pointsman.config.sections.server import Server
from pointsman.core.errors import GatewayError, ServerUnavailableError
from pointsman.core.model import Caller, Json
from pointsman.core.seams import CannotAskError, Client, FrontRequest, ProtocolError
from pointsman.router.downstream.server.server import DownstreamServer
from pointsman.router.gateway.large_results.large_results import WHOLE_KEY
from pointsman.router.gateway.meta_tools import DISCOVERY, EXECUTE
from pointsman.router.observe.metrics import Figures
from pointsman.router.owner.approvals import count_waiting, operations_of_approvals
from pointsman.router.owner.channel import Operation, OwnerError
from pointsman.router.owner.description import describe_flags, kind_of, target_of, with_path
from pointsman.router.owner.last_words import telling_lines
from pointsman.router.owner.parameters import read_count, read_object, read_objects, read_text, read_texts, read_words
from pointsman.router.owner.parts import Parts
from pointsman.router.owner.savings import estimate_savings
from pointsman.router.owner.search.replay import replay
from pointsman.router.owner.sign_in.page_sign_ins import CODE_S
from pointsman.router.owner.typed_arguments import typed
from pointsman.router.owner.wording import for_owner, result_for_owner
from pointsman.router.state.key_values import StateAwayError

OWNER = Caller(OWNER_ID, None)
SHORT_S = 30.0  # for an operation that waits for no server to start
RELOAD_S = 20.0
REPLAY_S = 300.0  # a search service may take seconds for each request
LISTS_S = 10.0  # for servers that have just started to list their tools
CALL_MARGIN_S = 30.0  # for queues and a restart, in addition to the longest `call_s`
SETTLE_MARGIN_S = 5.0  # in addition to `connect_s`
_ONLY_FOR_THE_OWNER = (
    "A model without a project does not get these: `unassigned.optimization` is off. "
    "`--project P` searches as in a project."
)
_CLIENT = Client("pointsman cli", "legacy", "2025-11-25", {}, None, None)


async def about(parts: Parts) -> Json:
    """Which gateway this is."""
    return {
        "version": __version__,
        "process": os.getpid(),
        **({"worker": parts.worker, "parent": os.getppid()} if parts.worker else {}),
        "url": parts.url,
        "configuration": str(parts.config_path.absolute()),
        "stateFolder": str(parts.state_dir.absolute()),
        "started": _iso(parts.started),
        "uptimeS": round(max(time.time() - parts.started, 0.0)),
    }


async def status(parts: Parts, *, at_once: bool = False) -> Json:
    """How the gateway is: its servers, calls and the context that it saves.

    `at_once`: without a wait for the lists of servers that have just started.
    """
    await parts.logs.flush()  # `doctor` shows the last words of servers next
    listed = _describe_all(parts) if at_once else await _describe_listed(parts)
    context = await estimate_savings(parts.catalog, parts.context_use)
    health, figures = parts.health.report(OWNER, to_owner=True), await parts.metrics.figures()
    enabled = [one for one in listed if one["enabled"]]
    own = ("ready", "version", "servers")
    return {
        **await about(parts),
        "ready": health["ready"],
        "problems": {key: value for key, value in health.items() if key not in own and isinstance(value, str)},
        "servers": {
            "running": sum(one["state"] == "running" for one in enabled),
            "enabled": len(enabled),
            "disabled": len(listed) - len(enabled),
            "tools": sum(one["tools"] or 0 for one in enabled),
            "list": [one | _shown_figures(figures.servers.get(one["id"])) for one in listed],
        },
        "calls": {
            **_shown_figures(figures.total),
            "refused": figures.refused,
            "discoveries": figures.discoveries,
        },
        "context": context,
        "waitsForRestart": list(parts.reloader.waiting),
        "waiting": {"calls": await count_waiting(parts), "definitions": sum(one["held"] for one in enabled)},
    }


async def names(parts: Parts) -> Json:
    """The names that a shell completes, and those of tools that wait for approval."""
    tools = [f"{server_id}:{name}" for server_id in parts.fleet.servers for name in _tool_names(parts, server_id)]
    config = parts.current.config
    held = [f"{one}:{each.name}" for one in config.servers for each in parts.pins.held(one) if each.kind == "tool"]
    return {"servers": list(config.servers), "projects": list(config.projects), "tools": tools, "heldTools": held}


async def servers(parts: Parts, *, at_once: bool = False) -> Json:
    """All servers of the configuration, and how each of them is. For `at_once` see `status`."""
    return {"servers": _describe_all(parts) if at_once else await _describe_listed(parts)}


def described_server(parts: Parts, server_id: str) -> Json:
    """How a server is now, without a wait."""
    return _describe(parts, server_id, require_server(parts, server_id))


async def settled_server(parts: Parts, server_id: str) -> Json:
    """How a server is once its present start has succeeded or failed, and once it has listed its tools."""
    server = require_server(parts, server_id)
    limit_s = parts.current.config.timeouts_of(server).connect_s + SETTLE_MARGIN_S
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await parts.fleet.settled_one(server_id)
    await parts.logs.flush()  # the person is shown its last words next
    running = parts.fleet.servers.get(server_id)
    failure = ""
    if running is not None and running.status.state == "running":
        listed = await parts.catalog.fetched(server_id)
        if isinstance(listed, ListFailure):
            failure = f"it listed no tools: {listed.reason}"
        elif not listed.items and not await _answers(running):  # without tools it was not even asked for them
            failure = "it did not answer a ping"
    await parts.catalog.watch.refresh()
    described = _describe(parts, server_id, parts.current.config.servers.get(server_id, server))
    if not failure or described["state"] != "running":
        return described
    return described | {"tools": None, "reason": failure}


async def restart_server(parts: Parts, server_id: str, asked_by: str = _CLIENT.name) -> Json:
    """Start a server anew, and say what became of it. Calls under way may finish on the old connection."""
    if not require_server(parts, server_id).enabled:
        raise _disabled(server_id)
    parts.audit.record_change("server/restart", f"servers.{server_id}", client=asked_by, server_id=server_id)
    parts.fleet.restart(server_id)
    return await settled_server(parts, server_id)


async def stop_server(parts: Parts, server_id: str, asked_by: str = _CLIENT.name) -> Json:
    """Stop a server until it is started again; the configuration stays. Calls under way may finish."""
    if not require_server(parts, server_id).enabled:
        raise _disabled(server_id)
    parts.audit.record_change("server/stop", f"servers.{server_id}", client=asked_by, server_id=server_id)
    parts.fleet.hold(server_id)
    return _describe(parts, server_id, parts.current.config.servers[server_id])


async def test_server(parts: Parts, server_id: str) -> Json:
    """Try a server now: one that runs lists its tools, one that failed is started again."""
    server = require_server(parts, server_id)
    if not server.enabled:
        return _describe(parts, server_id, server)
    running = parts.fleet.servers.get(server_id)
    if running is None or running.status.state != "running":
        parts.fleet.restart(server_id)
    found = await settled_server(parts, server_id)
    problem = parts.reloader.report(to_owner=True).get("configuration") if parts.reloader.rejected else None
    return found if problem is None else found | {"configuration": problem}


async def reload(parts: Parts, asked_by: str = _CLIENT.name) -> Json:
    """Read the configuration file now; the answer is sent when it is in effect, or rejected."""
    try:
        async with asyncio.timeout(RELOAD_S):
            problem = await parts.reloader.reload(asked_by)
    except TimeoutError:
        problem = f"The reload has not ended within {RELOAD_S:g} s. The gateway's log may say why."
        return {"configuration": str(parts.config_path.absolute()), "problem": problem, "rejected": False}
    return {
        "configuration": str(parts.config_path.absolute()),
        "problem": problem,
        "rejected": parts.reloader.rejected,
        "tokensWithdrawn": parts.reloader.rejected and parts.reloader.withdrew,
    }


async def reload_secrets(parts: Parts) -> Json:
    """`reload` that asks the commands and keyrings of the configuration again."""
    parts.read_secrets_again()
    return await reload(parts)


def page_link(parts: Parts) -> Json:
    """A link that signs one browser in to the page, once and within 10 minutes."""
    if not parts.current.config.page.enabled:
        raise OwnerError("page_disabled", "The page is switched off: the configuration says `page: {enabled: false}`.")
    base = parts.url.removesuffix("/mcp")
    return {"url": f"{base}/page/enter?code={parts.sign_ins.new_code()}", "expiresS": CODE_S}


async def _page_link(parts: Parts) -> Json:
    return page_link(parts)


async def page_logout(parts: Parts) -> Json:
    """End all sessions of the page, and its unused links."""
    try:
        await parts.sign_ins.end_all_everywhere()
    except OSError as error:
        raise OwnerError("state", f"Nobody was signed out: {error.strerror} ({parts.state_dir}).") from error
    except StateAwayError as error:
        raise OwnerError("state", f"Nobody was signed out. {error}") from error
    parts.audit.record_change("page/logout", "page", client=_CLIENT.name)
    return {"url": parts.url.removesuffix("/mcp")}


async def tools(parts: Parts, server_id: str | None = None) -> Json:
    """All tools of the enabled servers, or of one server; `allowed` is false for those that are switched off."""
    if server_id is not None:
        require_server(parts, server_id)
    collected = await parts.catalog.collected(OWNER)
    listed = []
    for owner_id, part in collected.parts.items():
        permits = parts.catalog.rights.permits(OWNER, owner_id)
        if server_id in (None, owner_id):
            listed += [
                {
                    "toolKey": tool.document.tool_key,
                    "server": owner_id,
                    "allowed": permits(name, tool.claimed),
                    **_shown(tool.tool),
                }
                for name, tool in part.items.items()
            ]
    missing = {one: _reason(parts, one) for one in collected.gaps if one not in collected.parts}
    return {"tools": listed, "missing": {one: why for one, why in missing.items() if server_id in (None, one)}}


async def search(parts: Parts, queries: list[str], project_id: str | None = None, max_results: int = 10) -> Json:
    """What `tool_discovery` answers: over all servers, or as a caller of one project sees it."""
    if project_id is not None and project_id not in parts.current.config.projects:
        raise _unknown("project", project_id, parts.current.config.projects, "pointsman project list")
    given = {"query": queries, "maxResults": max_results}
    answer = await _call(parts, Caller(OWNER_ID, project_id), DISCOVERY, given, SHORT_S)
    if notice := answer.get("structuredContent", {}).get("notice"):
        answer["structuredContent"]["notice"] = for_owner(notice)
    if project_id is None and parts.current.config.unassigned.optimization is None and "structuredContent" in answer:
        found = answer["structuredContent"]
        found["notice"] = " ".join(filter(None, (found.get("notice"), _ONLY_FOR_THE_OWNER)))
    return answer


async def replay_cases(parts: Parts, cases: list[Json], providers: list[str]) -> Json:
    """Where the expected tools of requests come, by the search in use and by others. Writes no audit rows.

    `away`: the servers of expected tools that do not run, and their states.
    """
    config = parts.current.config
    ranked = await limited(replay(parts.catalog, config, parts.state_dir, cases, providers), REPLAY_S)
    wanted = dict.fromkeys(key.partition(":")[0] for case in cases for key in case["expected"])
    states = {one: _state(parts, one, server) for one, server in config.servers.items() if one in wanted}
    return ranked | {"away": {one: state for one, state in states.items() if state != "running"}}


async def call(
    parts: Parts, tool_key: str, arguments: Json, words: Mapping[str, str], asked_by: str = _CLIENT.name
) -> Json:
    """Call a tool as the owner: with the checks, limits and audit rows of any other call.

    `words` are arguments as they were typed; the tool's schema decides whether one is JSON or text.
    """
    server_id = tool_key.partition(":")[0]
    server = parts.current.config.servers.get(server_id)
    if server is not None and not server.enabled:
        raise _disabled(server_id)
    if words:
        arguments = typed(arguments, words, await _input_schema(parts, tool_key))
    config = parts.current.config
    longest_s = max((config.timeouts_of(server).call_s for server in config.servers.values()), default=0.0)
    given = {"toolKey": tool_key, "arguments": arguments}
    client = replace(_CLIENT, name=asked_by)
    return result_for_owner(await _call(parts, OWNER, EXECUTE, given, longest_s + CALL_MARGIN_S, client))


def summary(parts: Parts) -> str:
    """One line on how many servers and tools there are, and which servers are missing and why."""
    listed = [one for one in _describe_all(parts) if one["enabled"]]
    if not listed:
        return "no servers yet: add one with `pointsman server add NAME COMMAND`, or edit the configuration"
    count = sum(one["tools"] or 0 for one in listed)
    running = [one for one in listed if one["state"] == "running" and one["tools"] is not None]
    line = f"{count} {_plural(count, 'tool')} on {len(running)} of {len(listed)} {_plural(len(listed), 'server')}"
    missing = [f"`{one['id']}` ({one['reason'] or 'no list of tools yet'})" for one in listed if one not in running]
    return f"{line}; missing: {', '.join(missing)}" if missing else line


def operations_of(parts: Parts) -> dict[str, Operation]:
    """The operations by the names that the channel has for them, with their parameters checked."""

    def plain(function: Callable[[Parts], Awaitable[Json]]) -> Operation:
        return lambda given: limited(function(parts), SHORT_S)

    def of_server(function: Callable[[Parts, str], Awaitable[Json]]) -> Operation:
        return lambda given: function(parts, read_text(given, "server"))

    def named(given: Json, name: str) -> str | None:
        return None if given.get(name) is None else read_text(given, name)

    return {
        "about": plain(about),
        "status": plain(status),
        "names": plain(names),
        "servers": plain(servers),
        "reload": plain(reload),
        "reload_secrets": plain(reload_secrets),
        "page_link": plain(_page_link),
        "page_logout": plain(page_logout),
        "settled_server": of_server(settled_server),
        "restart_server": of_server(restart_server),
        "stop_server": of_server(stop_server),
        "test_server": of_server(test_server),
        "tools": lambda given: limited(tools(parts, named(given, "server")), SHORT_S),
        "search": lambda given: search(parts, read_texts(given, "queries"), named(given, "project"), read_count(given)),
        "replay": lambda given: replay_cases(parts, read_objects(given, "cases"), read_texts(given, "providers")),
        "call": lambda given: call(parts, read_text(given, "tool"), read_object(given, "arguments"), read_words(given)),
        **operations_of_approvals(parts, _CLIENT.name),
    }


# ------------------------------------------------------------------ helpers


async def _answers(server: DownstreamServer) -> bool:
    try:
        return await server.answers()
    except ServerUnavailableError:
        return True  # its state says it


async def _describe_listed(parts: Parts) -> list[Json]:
    """Describe all servers once those that run have listed their tools: one that has not then is slow, or cannot."""
    counts: dict[str, int] = {}
    with suppress(TimeoutError):
        async with asyncio.timeout(LISTS_S):
            for _ in range(2):  # again for servers that were starting before
                collected = await parts.catalog.collected(OWNER)
                counts |= {server_id: len(part.items) for server_id, part in collected.parts.items()}
                if all(one["id"] in counts for one in _describe_all(parts) if _lacks_list(one)):
                    break
            await parts.catalog.watch.refresh()
    # During a restart after an edit, the old connection's list counts, though it is not the last list.
    return [one | {"tools": counts.get(one["id"])} if _lacks_list(one) else one for one in _describe_all(parts)]


def _lacks_list(one: Json) -> bool:
    return bool(one["enabled"]) and one["state"] == "running" and one["tools"] is None


def _describe_all(parts: Parts) -> list[Json]:
    return [_describe(parts, server_id, server) for server_id, server in parts.current.config.servers.items()]


def _describe(parts: Parts, server_id: str, server: Server) -> Json:
    running = parts.fleet.servers.get(server_id)
    listed = parts.catalog.last_list(server_id)
    introduction = running.introduction if running is not None else None
    held = parts.pins.held(server_id) if server.enabled else []
    return {
        "id": server_id,
        "name": display_name(server_id, server),
        "kind": kind_of(server),
        "target": target_of(server),
        "enabled": server.enabled,
        "state": running.status.shown if running is not None else "stopped",
        "reason": _reason(parts, server_id),
        "since": _iso(running.status.shown_since) if running is not None else None,
        "protocol": introduction.version if introduction is not None else None,
        "tools": len(listed.items) if listed is not None and server.enabled else None,
        "held": 0 if is_unread(held) else len(held),
        "unread": is_unread(held),  # it is not known what was approved
        "restarts": running.restarts if running is not None else 0,
        "emptyVariables": list(parts.current.config.empty_variables(server_id)),
        "lastWords": _last_words(parts, server_id),
        "projects": list(server.projects),
        "flags": describe_flags(parts.catalog.watch.flags.get(server_id, ())) if server.enabled else [],
    }


def _state(parts: Parts, server_id: str, server: Server) -> str:
    running = parts.fleet.servers.get(server_id)
    return "disabled" if not server.enabled else running.status.shown if running is not None else "stopped"


def _reason(parts: Parts, server_id: str) -> str:
    running = parts.fleet.servers.get(server_id)
    if running is None or running.status.state != "failed":
        return running.status.reason if running is not None else ""
    server = parts.current.config.servers.get(server_id)
    cause = parts.logs.of(server_id).last_cause if server is not None and server.url is None else ""
    reason = with_path(running.status.reason, server)
    return f"{reason}: {mask_secrets(cause)}" if cause else reason


def _last_words(parts: Parts, server_id: str) -> list[str]:
    """The lines with which its last run ended, if it has failed; of a program that was not started, none."""
    running, server = parts.fleet.servers.get(server_id), parts.current.config.servers.get(server_id)
    if running is None or running.status.state != "failed" or server is None or server.url is not None:
        return []
    return telling_lines(parts.logs.of(server_id).last_output)


def _tool_names(parts: Parts, server_id: str) -> list[str]:
    listed = parts.catalog.last_list(server_id)
    return list(listed.items) if listed is not None else []


async def _input_schema(parts: Parts, tool_key: str) -> Any:
    """None: the tool cannot be called now, and the call will say why."""
    with suppress(GatewayError):
        return (await parts.catalog.resolve(OWNER, tool_key)).tool.get("inputSchema")
    return None


def _shown(tool: Json) -> Json:
    return {key: tool[key] for key in ("title", "description", "inputSchema") if key in tool}


def _shown_figures(figures: Figures | None) -> Json:
    if figures is None:
        return {"calls": 0, "errors": 0}
    milliseconds = {f"p{share * 100:.0f}Ms": round(value * 1000, 1) for share, value in figures.quantiles.items()}
    return {"calls": figures.calls, "errors": figures.errors, **milliseconds}


class _NoQuestions:
    """Fits `BackChannel`: a command cannot be asked anything, and shows no progress."""

    def notify(self, method: str, params: Json) -> None:
        pass

    async def ask(self, method: str, params: Json) -> Json:
        raise CannotAskError

    def reachable(self) -> bool:
        return True


async def _call(
    parts: Parts, caller: Caller, tool: str, arguments: Json, limit_s: float, client: Client = _CLIENT
) -> Json:
    params: Json = {"name": tool, "arguments": arguments, "_meta": {WHOLE_KEY: True}}
    request = FrontRequest(secrets.token_hex(8), "tools/call", params, caller, client)
    try:
        return await limited(parts.gateway.handle(request, _NoQuestions()), limit_s)
    except ProtocolError as error:
        raise OwnerError(str(error.code), f"The server answered with an error: {error.message}") from None


async def limited(work: Awaitable[Json], limit_s: float) -> Json:
    try:
        async with asyncio.timeout(limit_s):
            return await work
    except TimeoutError:
        raise OwnerError("timeout", f"The gateway needed more than {limit_s:g} s. Its log may say why.") from None


def require_server(parts: Parts, server_id: str) -> Server:
    server = parts.current.config.servers.get(server_id)
    if server is None:
        raise _unknown("server", server_id, parts.current.config.servers, "pointsman server list")
    return server


def _disabled(server_id: str) -> OwnerError:
    step = f"Enable it with `pointsman server enable {server_id}`."
    return OwnerError("disabled", f"Server `{server_id}` is disabled. {step}")


def _unknown(kind: str, name: str, known: Iterable[str], command: str) -> OwnerError:
    near = closest(name[:64], known)
    hint = f" Did you mean `{near}`?" if near else f" `{command}` shows them."
    return OwnerError(f"unknown_{kind}", f"There is no {kind} `{name[:64]}`.{hint}")


def _plural(count: int, word: str) -> str:
    return word if count == 1 else f"{word}s"


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat("T", "seconds")
