"""What a configuration may say, but hardly means."""

from __future__ import annotations

from pointsman.config.model import GatewayConfig


def advice(config: GatewayConfig) -> tuple[str, ...]:
    """One sentence for each, with the key and the next step."""
    keys = cloud_keys(config)
    if config.cloud_search is None and keys:
        named = ", ".join(f"`{key}`" for key in keys)
        return (f"{named}: `cloud` needs `cloud_search` with `url` and `token`; without it the local search answers",)
    return ()


def cloud_keys(config: GatewayConfig) -> tuple[str, ...]:
    """The keys that ask for cloud search."""
    projects = [
        f"projects.{project_id}" for project_id, each in config.projects.items() if each.optimization == "cloud"
    ]
    unassigned = ["unassigned"] if config.unassigned.optimization == "cloud" else []
    return tuple(f"{place}.optimization" for place in (*projects, *unassigned))
