"""Checks that what the configuration says of tools by name fits tools that exist: a misspelt name asks for nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pointsman.config.errors import closest
from pointsman.config.model import GatewayConfig
from pointsman.config.tool_patterns import EXCLUDE, ToolPatterns, named_server
from pointsman.router.doctor.findings import Finding, Inspected

MAX_NOTES = 20
_WILDCARD = "*"


def check_patterns(inspected: Inspected) -> list[Finding]:
    """Note patterns of `confirm` and `tools`, and names of `tool_rates` and `tool_permissions`, that fit no tool.

    The names of tools that wait for approval are known as well. Servers that do not run are left out, and those whose
    tools are not known.
    """
    if inspected.status is None or inspected.config is None:
        return []
    listed = inspected.status["servers"]["list"]
    found = (*inspected.tools, *inspected.held_tools)
    with_tools = {key.partition(":")[0] for key in found}
    known = {one["id"] for one in listed if one["state"] == "running" and one["id"] in with_tools}
    all_known = all(one["id"] in known for one in listed if one["enabled"])
    tools: dict[str, list[str]] = {server_id: [] for server_id in known}
    for key in found:
        server_id, _, name = key.partition(":")
        if server_id in tools:
            tools[server_id].append(name)
    notes = []
    for place, pattern in _patterns(inspected.config):
        named = named_server(pattern)
        if named in tools or (named is None and all_known):
            notes += _note(place, pattern, tools)
    rest = len(notes) - MAX_NOTES
    more = [Finding("patterns", "note", f"{rest} more names fit no tool.")] if rest > 0 else []
    return [Finding("patterns", "note", text) for text in notes[:MAX_NOTES]] + more


def _patterns(config: GatewayConfig) -> Iterator[tuple[str, str]]:
    """All patterns and names, with the keys where they are."""
    places = {"unassigned": config.unassigned} | {f"projects.{one}": entry for one, entry in config.projects.items()}
    for place, project in places.items():
        yield from _listed(place, project.confirm, project.tools)
    for token_id, token in config.tokens.items():
        yield from _listed(f"tokens.{token_id}", token.confirm, token.tools)
    for server_id, server in config.servers.items():
        yield from _listed(f"servers.{server_id}", server.confirm, None)
        for key, names in (("tool_rates", server.tool_rates), ("tool_permissions", server.tool_permissions)):
            yield from ((f"servers.{server_id}.{key}", f"{server_id}:{name}") for name in names)


def _listed(place: str, confirm: str | Sequence[str], tools: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    if not isinstance(confirm, str):
        yield from ((f"{place}.confirm", pattern) for pattern in confirm)
    yield from ((f"{place}.tools", pattern) for pattern in tools or ())


def _note(place: str, pattern: str, tools: Mapping[str, Sequence[str]]) -> list[str]:
    single = ToolPatterns([pattern.removeprefix(EXCLUDE)])
    for server_id, names in tools.items():
        fits = single.of_server(server_id)
        if any(fits.leaves(name) for name in names):
            return []
    server_id, _, tool = pattern.removeprefix(EXCLUDE).partition(":")
    near = closest(tool, tools.get(server_id, ())) if _WILDCARD not in tool else None
    hint = f" Did you mean `{server_id}:{near}`?" if near is not None else ""
    return [f"`{place}`: `{pattern}` fits no tool that a server lists.{hint}"]
