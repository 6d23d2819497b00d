"""What a configuration may say, but hardly means."""

from __future__ import annotations

from pointsman.config.model import GatewayConfig


def advice(config: GatewayConfig) -> tuple[str, ...]:
    """One sentence for each, with the keys and the next step."""
    projects = cloud_projects(config)
    if config.cloud_search is not None or not projects:
        return ()
    places = ("unassigned" if project_id is None else f"projects.{project_id}" for project_id in projects)
    keys = ", ".join(f"`{place}.optimization`" for place in places)
    return (f"{keys}: `cloud` needs `cloud_search` with `url` and `token`; until it is set, the local search answers.",)


def cloud_projects(config: GatewayConfig) -> tuple[str | None, ...]:
    """The projects that ask for cloud search; None stands for callers without one."""
    projects = [project_id for project_id, project in config.projects.items() if project.optimization == "cloud"]
    return (*projects, None) if config.unassigned.optimization == "cloud" else tuple(projects)
