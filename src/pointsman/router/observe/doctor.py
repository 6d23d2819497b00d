"""The checks of `pointsman doctor`: one function for each thing that can be wrong, with the next step."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pointsman.catalog.rights import identify
from pointsman.config.loader import advice, cloud_projects
from pointsman.config.model import GatewayConfig
from pointsman.core.errors import ForbiddenError, UnauthorizedError
from pointsman.providers.base import SearchRequest, ToolDocument
from pointsman.providers.cloud import errors as cloud_errors
from pointsman.providers.cloud.errors import CloudError
from pointsman.providers.cloud.provider import CloudSearchProvider
from pointsman.router.serving import state_folder

HEALTH_S = 5.0
SHOWN_PROJECTS = 20
_SAMPLE = ToolDocument("doctor:greet", "greet", "Doctor", "Greet somebody by name", {})
Level = Literal["ok", "note", "problem"]
_HEALTH_LEVELS: dict[str, Level] = {
    "audit": "problem",
    "audit_database": "problem",
    "audit_rows": "problem",
    "configuration": "problem",
    "configuration_watch": "note",
    "tasks": "problem",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """`problem`: something is wrong, and the message says what to do. `note`: worth knowing."""

    check: str
    level: Level
    message: str


@dataclass(frozen=True, slots=True)
class Inspected:
    """What to check."""

    config: GatewayConfig | None  # None: it could not be loaded, for the reasons in `problems`
    problems: tuple[str, ...]
    config_name: str
    state_dir: Path
    token: str | None  # with which a client would connect


Check = Callable[[Inspected], Awaitable[list[Finding]]]


async def examine(inspected: Inspected) -> list[Finding]:
    """Run all checks and return their findings in order."""
    return [finding for check in CHECKS for finding in await check(inspected)]


async def check_configuration(inspected: Inspected) -> list[Finding]:
    if inspected.config is None:
        return [Finding("configuration", "problem", problem) for problem in inspected.problems]
    remarks = [Finding("configuration", "problem", remark) for remark in advice(inspected.config)]
    return remarks or [Finding("configuration", "ok", f"{inspected.config_name} is in order.")]


async def check_gateway(inspected: Inspected) -> list[Finding]:
    """Check the gateway that uses the state folder, by its own health report."""
    running = state_folder.find_running(inspected.state_dir)
    if running is None:
        return [Finding("gateway", "note", "No gateway runs with this state folder. `pointsman serve` starts one.")]
    import httpx2

    name = f"The gateway on {running.url} (process {running.pid})"
    problems: dict[Finding, None] = {}  # a server of several projects is reported once
    try:
        async with httpx2.AsyncClient(timeout=HEALTH_S, trust_env=False) as http:
            for headers in _identities(inspected):
                answer = await http.get(running.url.removesuffix("/mcp") + "/health", headers=headers)
                if answer.status_code in (401, 403):
                    return [Finding("gateway", "problem", f"{name} does not accept the token in POINTSMAN_TOKEN.")]
                problems |= dict.fromkeys(_read_health(name, answer.json()))
    except (httpx2.HTTPError, ValueError) as error:
        return [Finding("gateway", "problem", f"{name} does not answer: {error!r}. Its log may say why.")]
    return list(problems) or [Finding("gateway", "ok", f"{name} is ready.")]


async def check_cloud_search(inspected: Inspected) -> list[Finding]:
    """Run one small search for each project that uses it; stop after the first if the service itself fails."""
    if inspected.config is None or inspected.config.cloud_search is None:
        return []
    projects = cloud_projects(inspected.config)
    if not projects:
        unused = "`cloud_search` is set, but no project has `optimization: cloud`, so it is not used."
        return [Finding("cloud_search", "note", unused)]
    import httpx2  # noqa: F401 - imported before the search is timed

    cloud = CloudSearchProvider(inspected.config.cloud_search)
    findings = []
    try:
        for project_id in projects[:SHOWN_PROJECTS]:
            finding, try_next = await _try_search(cloud, project_id)
            findings.append(finding)
            if not try_next:
                break
    finally:
        await cloud.close()
    return findings


CHECKS: tuple[Check, ...] = (check_configuration, check_gateway, check_cloud_search)


def _identities(inspected: Inspected) -> list[dict[str, str]]:
    """Return the headers of each health request: the token, for each project that it may use."""
    if not inspected.token:
        return [{}]
    token = {"Authorization": f"Bearer {inspected.token}"}
    if inspected.config is None:
        return [token]
    named = [
        project_id
        for project_id in inspected.config.projects
        if _may_act_for(inspected.config, inspected.token, project_id)
    ]
    identities = [token | {"X-Pointsman-Project": project_id} for project_id in named[:SHOWN_PROJECTS]]
    return (
        identities if identities and not _may_act_for(inspected.config, inspected.token, None) else [token, *identities]
    )


def _may_act_for(config: GatewayConfig, token: str, project_id: str | None) -> bool:
    try:
        identify(config, token, project_id, time.time())
    except (UnauthorizedError, ForbiddenError):
        return False
    return True


def _read_health(name: str, report: dict[str, Any]) -> list[Finding]:
    findings = [
        Finding("gateway", level, f"{name}: {report[key]}") for key, level in _HEALTH_LEVELS.items() if key in report
    ]
    for server_id, server in report.get("servers", {}).items():
        if server["state"] == "failed":
            reason = server.get("reason", "`pointsman server log` may say why")
            findings.append(Finding("gateway", "problem", f"Server `{server_id}` does not run: {reason}"))
    if not report.get("ready") and not findings:
        findings.append(Finding("gateway", "problem", f"{name} is not ready yet, or about to end."))
    return findings


async def _try_search(cloud: CloudSearchProvider, project_id: str | None) -> tuple[Finding, bool]:
    """Return the finding, and whether to try another project."""
    where = f"for project `{project_id}`" if project_id is not None else "without a project"
    began = time.monotonic()
    try:
        await cloud.search(SearchRequest(("greet somebody",), None, (_SAMPLE,), 1, project_id, "doctor"))
    except CloudError as failure:
        message = f"Asked {where}, the search service {failure}. {_next_step(failure)}."
        return Finding("cloud_search", "problem", message), failure.project_only
    took_ms = (time.monotonic() - began) * 1000
    return Finding("cloud_search", "ok", f"Asked {where}, the search service answered in {took_ms:.0f} ms."), True


def _next_step(failure: CloudError) -> str:
    if failure.fix:
        return f"Configuration error: {failure.fix}"
    match failure.code:
        case cloud_errors.TIMEOUT:
            return "It is overloaded or hangs, or `cloud_search.timeout_s` is too short for it"
        case cloud_errors.UNREACHABLE:
            return f"Look at `cloud_search.url` and whether the service runs ({failure.detail})"
    return f"Its operator should look at its log{f' ({failure.detail})' if failure.detail else ''}"
