"""The check of the search service: one small search for each project that uses it."""

from __future__ import annotations

import time

from pointsman.config.loader import cloud_projects
from pointsman.providers.base import SearchRequest, ToolDocument
from pointsman.providers.cloud import errors as cloud_errors
from pointsman.providers.cloud.errors import CloudError
from pointsman.providers.cloud.provider import CloudSearchProvider
from pointsman.router.doctor.findings import Finding, Inspected, unread_text

SHOWN_PROJECTS = 20
_SAMPLE = ToolDocument("doctor:greet", "greet", "Doctor", "Greet somebody by name", {})


async def check_cloud_search(inspected: Inspected) -> list[Finding]:
    """Run one small search for each project that uses it; stop after the first if the service itself fails."""
    if inspected.config is None or inspected.config.cloud_search is None:
        return []
    projects = cloud_projects(inspected.config)
    if not projects:
        unused = "`cloud_search` is set, but no project has `optimization: cloud`, so it is not used."
        return [Finding("cloud_search", "note", unused)]
    if unread := inspected.config.unread_secrets("cloud_search"):
        return [Finding("cloud_search", "note", unread_text(unread, "the search service was not asked"))]
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
