"""Projects: how their tools are found, who belongs to them, and who can use what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from starlette.responses import Response

from pointsman.catalog.definitions import KnownTool
from pointsman.catalog.names import display_name
from pointsman.catalog.rights import CallerLimits, RightsIndex
from pointsman.config.edits import Writer, add_project, remove_project, set_project, set_server, set_token
from pointsman.config.errors import closest
from pointsman.config.files import Rewritten
from pointsman.config.model import ANY, UNASSIGNED, GatewayConfig
from pointsman.core.model import Caller, Json
from pointsman.router.owner.channel import OwnerError
from pointsman.router.owner.description import OFF, describe_project
from pointsman.router.owner.parts import Parts
from pointsman.router.page.registry import Screen
from pointsman.router.page.view import View

PATH = "/page/projects"
NO_PROJECT = "@unassigned"  # in an address, for callers that name no project; no project can have this id
ROWS = 50  # of a list or a matrix on one page
COLUMNS = 8  # tokens beside each other
MEMBERS = 50  # that are listed
OPTIMIZATIONS = {OFF: "Off", "bm25": "BM25", "cloud": "Cloud"}
EXPOSURES = {"meta": "Two tools", "flat": "All tools by name"}
_WITHOUT_SERVICE = (
    "`cloud` needs `cloud_search` with `url` and `token` in the configuration file; "
    "until it is set, the local search answers."
)


async def show(view: View) -> Response:
    return _list(view)


def _list(view: View, error: str = "") -> Response:
    """With an error, what was typed stays in the form."""
    config, rights = view.parts.current.config, view.parts.catalog.rights
    page, ids = view.number("page", 1), [UNASSIGNED, *config.projects]
    shown = ids[(page - 1) * ROWS : page * ROWS]
    return view.render(
        "projects.html",
        400 if error else 200,
        error=error,
        projects=[_described(config, rights, project_id) for project_id in shown],
        optimizations=OPTIMIZATIONS,
        has_service=config.cloud_search is not None,
        page=page,
        more=len(ids) > page * ROWS,
    )


async def show_one(view: View) -> Response:
    parts, project_id = view.parts, _project_of(view)
    config, rights = parts.current.config, parts.catalog.rights
    described = _described(config, rights, project_id)
    members = [name for name in config.tokens if rights.includes(name, project_id or None)]
    server_id = view.query("server")
    if server_id and server_id not in described["servers"]:
        raise _unknown("server", server_id, described["servers"])
    return view.render(
        "project.html",
        project=described,
        optimizations=OPTIMIZATIONS,
        exposures=EXPOSURES,
        has_service=config.cloud_search is not None,
        warning=_WITHOUT_SERVICE,
        members=[_member(config, name, project_id) for name in members[:MEMBERS]],
        other_tokens=[name for name in config.tokens if name not in set(members)],
        other_servers=[one for one in config.servers if one not in described["servers"]],
        names={one: display_name(one, config.servers[one]) for one in described["servers"]},
        matrix=_matrix(view, described["servers"], members, project_id, server_id),
    )


async def create(view: View) -> Response:
    project_id, name, optimization = view.field("id"), view.field("name"), view.field("optimization", "bm25")
    if not project_id:
        return _list(view, "A project needs an id of letters, digits, `-` and `_`, such as `research`.")
    values: dict[str, Any] = {"name": name} if name else {}
    values["optimization"] = _optimization(optimization)
    path = view.parts.config_path

    def edit(environ: Mapping[str, str], write: Writer) -> Rewritten:
        return add_project(path, project_id, values, environ, write)

    title = f"Create the project {project_id[:64]}?"
    try:
        asked = await view.change(edit, "project", title=title, to=PATH, button="Create")
    except OwnerError as error:
        return _list(view, str(error))
    return asked or view.done(f"The project `{project_id}` is there. Give it servers and tokens.", _address(project_id))


async def set_optimization(view: View) -> Response:
    chosen = view.field("optimization")
    text = _WITHOUT_SERVICE if chosen == "cloud" and view.parts.current.config.cloud_search is None else ""
    if chosen == OFF:
        text = "With it off, `tool_discovery` finds nothing; a model can only call tools whose keys it knows."
    return await _set(view, {"optimization": _optimization(chosen)}, f"uses {OPTIMIZATIONS.get(chosen)}", text)


async def set_exposure(view: View) -> Response:
    chosen = view.field("exposure")
    if chosen not in EXPOSURES:
        raise OwnerError("invalid", "Choose one of the ways in which the tools are exposed.")
    text = "A model then gets the schemas of all tools at once." if chosen == "flat" else ""
    return await _set(view, {"exposure": chosen}, f"exposes {EXPOSURES[chosen].lower()}", text)


async def set_patterns(view: View) -> Response:
    """Choose which tools of its servers the project has."""
    patterns = read_patterns(view)
    text = "" if patterns else "Callers of the project can then use all tools of its servers."
    return await _set(view, {"tools": patterns}, "has another choice of tools", text)


def read_patterns(view: View) -> list[str] | None:
    """The patterns that were typed, one a line; None: all tools."""
    return [line.strip() for line in view.field("tools").splitlines() if line.strip()] or None


async def set_server_membership(view: View) -> Response:
    """Add a server to the project, or take it out of it."""
    project_id, server_id, path = _project_of(view), view.field("server"), view.parts.config_path
    servers = view.parts.current.config.servers
    if server_id not in servers:
        raise _unknown("server", server_id, servers)
    before = servers[server_id].projects
    after = [one for one in before if one != project_id]
    if view.field("wanted") == "yes":
        after = [*after, project_id] if project_id else []

    def edit(environ: Mapping[str, str], write: Writer) -> Rewritten:
        return set_server(path, server_id, {("projects",): after}, environ, write)

    text = ""
    if before and not after:
        text = f"`{server_id}` then belongs to no project: tokens that may act without a project can use it."
    elif after and not before:
        text = "Callers without a project can then no longer use it."
    title, to = f"Change the projects of {server_id}?", _address(project_id)
    asked = await view.change(edit, "server", title=title, to=to, text=text)
    where = "in " + ", ".join(f"`{one}`" for one in after) if after else "in no project"
    return asked or view.done(f"`{server_id}` is {where} now.", to)


async def set_token_membership(view: View) -> Response:
    """Let a token act for the project, or no longer."""
    project_id, name, path = _project_of(view), view.field("token"), view.parts.config_path
    tokens = view.parts.current.config.tokens
    if name not in tokens:
        raise _unknown("token", name, tokens)
    if ANY in tokens[name].projects:
        raise OwnerError(
            "any_project", f"`{name}` may act for all projects. Choose its projects on its own page first."
        )
    after = [one for one in tokens[name].projects if one != project_id]
    wanted = view.field("wanted") == "yes"
    after += [project_id] if wanted else []

    def edit(environ: Mapping[str, str], write: Writer) -> Rewritten:
        return set_token(path, name, {"projects": after}, environ, write)

    to = _address(project_id)
    asked = await view.change(edit, "token", title=f"Change the projects of {name}?", to=to)
    return asked or view.done(f"`{name}` may {'now' if wanted else 'no longer'} act for this project.", to)


async def set_permission(view: View) -> Response:
    """Allow or forbid one tool of a server, for all callers."""
    project_id, key, path = _project_of(view), view.field("tool"), view.parts.config_path
    server_id, _, tool = key.partition(":")
    servers, listed = view.parts.current.config.servers, view.parts.catalog.last_list(server_id)
    if server_id not in servers:
        raise _unknown("server", server_id, servers)
    if tool not in (listed.items if listed is not None else {}):
        raise OwnerError("unknown_tool", f"`{server_id}` has listed no tool `{tool[:64]}`.")
    allowed = view.field("allowed") == "yes"

    def edit(environ: Mapping[str, str], write: Writer) -> Rewritten:
        return set_server(path, server_id, {("tool_permissions", tool): allowed}, environ, write)

    text = "" if allowed else "No caller can find or call it then, whatever its token and project."
    title = f"{'Allow' if allowed else 'Forbid'} {tool}?"
    to = f"{_address(project_id)}?server={server_id}"
    asked = await view.change(edit, "server", title=title, to=to, text=text)
    return asked or view.done(f"`{key}` is {'allowed' if allowed else 'forbidden'} now.", to)


async def remove(view: View) -> Response:
    project_id, config, path = _project_of(view), view.parts.current.config, view.parts.config_path
    if not project_id:
        raise OwnerError("unassigned", "What belongs to no project cannot be removed.")
    users = [f"`{one}`" for one, server in config.servers.items() if project_id in server.projects]
    users += [f"the token `{one}`" for one, token in config.tokens.items() if project_id in token.projects]
    if users:
        shown = ", ".join(users[:10]) + (f" and {len(users) - 10} more" if len(users) > 10 else "")
        raise OwnerError("in_use", f"`{project_id}` is in use by {shown}. Take them out of it first.")

    def edit(environ: Mapping[str, str], write: Writer) -> Rewritten:
        return remove_project(path, project_id, environ, write)

    title, text = (
        f"Remove the project {project_id}?",
        f"Clients that use `/projects/{project_id}/mcp` are refused then.",
    )
    asked = await view.change(edit, "project", title=title, to=PATH, text=text, danger=True, button="Remove")
    return asked or view.done(f"The project `{project_id}` is removed.", PATH)


# ------------------------------------------------------------------ helpers


async def _set(view: View, values: Mapping[str, Any], done: str, text: str) -> Response:
    project_id, path, config = _project_of(view), view.parts.config_path, view.parts.current.config
    one = config.projects[project_id] if project_id else config.unassigned
    before = {key: list(had) if isinstance(had := getattr(one, key), tuple) else had for key in values}
    if before == values:  # maybe by default
        raise OwnerError("unchanged", "That is what the configuration has already.")

    def edit(environ: Mapping[str, str], write: Writer) -> Rewritten:
        return set_project(path, project_id, values, environ, write)

    to = PATH if view.field("from") == "list" else _address(project_id)
    shown = project_id or "callers without a project"
    asked = await view.change(edit, "project", title=f"Change {shown}?", to=to, text=text)
    return asked or view.done(f"{f'`{project_id}`' if project_id else 'Without a project, a caller'} {done} now.", to)


def _matrix(view: View, servers: list[str], members: list[str], project_id: str, server_id: str) -> Json:
    """Rows of servers, or of the tools of one server; a column for each token. Only what is shown is computed."""
    page, across, wanted = view.number("page", 1), view.number("tokens", 1), view.query("q").lower()
    tokens = members[(across - 1) * COLUMNS : across * COLUMNS]
    callers = [Caller(name, project_id or None) for name in tokens]
    found = _tool_rows(view.parts, server_id, wanted) if server_id else _server_rows(view.parts, servers, wanted)
    shown = found[(page - 1) * ROWS : page * ROWS]
    fill = _tool_cells if server_id else _server_cells
    return {
        "server": server_id,
        "tokens": tokens,
        "across": across,
        "more_across": len(members) > across * COLUMNS,
        "rows": [row | {"cells": list(fill(view.parts, row, callers))} for row in shown],
        "total": len(found),
        "page": page,
        "more": len(found) > page * ROWS,
    }


def _server_rows(parts: Parts, servers: Iterable[str], wanted: str) -> list[Json]:
    config = parts.current.config
    rows = [{"id": one, "name": display_name(one, config.servers[one])} for one in servers]
    return [
        row | {"enabled": config.servers[row["id"]].enabled}
        for row in rows
        if wanted in row["id"].lower() or wanted in row["name"].lower()
    ]


def _server_cells(parts: Parts, row: Json, callers: Iterable[Caller]) -> Iterator[Json]:
    """How many of its tools each caller may use; None: the server has listed none yet."""
    rights, listed = parts.catalog.rights, parts.catalog.last_list(row["id"])
    counts: dict[tuple[bool, CallerLimits], int] = {}  # many tokens have the same limits
    for caller in callers:
        granted = rights.may_use_server(caller, row["id"])
        alike = rights.reaches_app_tools(caller), rights.limits_of(caller)
        if granted and listed is not None and alike not in counts:
            tools = listed.items.items()
            counts[alike] = sum(_may_use(rights, caller, row["id"], name, tool) for name, tool in tools)
        total = len(listed.items) if listed is not None else None
        yield {"granted": granted, "may": counts.get(alike, 0) if granted else 0, "total": total}


def _tool_rows(parts: Parts, server_id: str, wanted: str) -> list[Json]:
    listed, server = parts.catalog.last_list(server_id), parts.current.config.servers[server_id]
    others = server.tool_permissions.get(ANY, True)
    return [
        {
            "id": f"{server_id}:{name}",
            "name": name,
            "enabled": server.enabled,
            "allowed": server.tool_permissions.get(name, others),
            "tool": tool,
        }
        for name, tool in (listed.items.items() if listed is not None else ())
        if wanted in name.lower()
    ]


def _tool_cells(parts: Parts, row: Json, callers: Iterable[Caller]) -> Iterator[Json]:
    server_id, _, name = row["id"].partition(":")
    for caller in callers:
        yield {"may": _may_use(parts.catalog.rights, caller, server_id, name, row["tool"])}


def _may_use(rights: RightsIndex, caller: Caller, server_id: str, name: str, tool: KnownTool) -> bool:
    if tool.for_apps_only and not rights.reaches_app_tools(caller):
        return False
    return rights.may_use(caller, server_id, name, tool.claimed)


def _described(config: GatewayConfig, rights: RightsIndex, project_id: str) -> Json:
    return describe_project(config, project_id) | {
        "path": _address(project_id),
        "tokens": sum(rights.includes(name, project_id or None) for name in config.tokens),
    }


def _member(config: GatewayConfig, name: str, project_id: str) -> Json:
    token = config.tokens[name]
    return {
        "name": name,
        "any": ANY in token.projects,
        "servers": ["all servers"] if ANY in token.servers else list(token.servers),
    }


def _optimization(chosen: str) -> str | None:
    if chosen not in OPTIMIZATIONS:
        raise OwnerError("invalid", "Choose one of off, BM25 and cloud.")
    return None if chosen == OFF else chosen


def _project_of(view: View) -> str:
    """The project of the address; empty for callers without one. Raises OwnerError."""
    given, known = view.path("id"), view.parts.current.config.projects
    if given == NO_PROJECT:
        return UNASSIGNED
    if given not in known:
        raise _unknown("project", given, known)
    return given


def _unknown(kind: str, name: str, known: Iterable[str]) -> OwnerError:
    near = closest(name[:64], known)
    return OwnerError(
        f"unknown_{kind}", f"There is no {kind} `{name[:64]}` here.{f' Did you mean `{near}`?' if near else ''}"
    )


def _address(project_id: str) -> str:
    return f"{PATH}/{project_id or NO_PROJECT}"


SCREEN = Screen(
    name="projects",
    title="Projects",
    icon="projects",
    path=PATH,
    routes=[
        ("GET", PATH, show),
        ("POST", PATH, create),
        ("GET", PATH + "/{id}", show_one),
        ("POST", PATH + "/{id}/optimization", set_optimization),
        ("POST", PATH + "/{id}/exposure", set_exposure),
        ("POST", PATH + "/{id}/patterns", set_patterns),
        ("POST", PATH + "/{id}/servers", set_server_membership),
        ("POST", PATH + "/{id}/tokens", set_token_membership),
        ("POST", PATH + "/{id}/tools", set_permission),
        ("POST", PATH + "/{id}/remove", remove),
    ],
)
