"""Checks that sandboxes and limits of servers can be enforced here, before or while a gateway runs."""

from __future__ import annotations

import asyncio

from pointsman.config.sections.server import Server
from pointsman.router.doctor.findings import Finding, Inspected
from pointsman.router.downstream.bundled import secret_values
from pointsman.router.downstream.stdio.environment import child_environment
from pointsman.router.downstream.stdio.launch import Confined, Launch, SandboxRefusedError, protected_paths
from pointsman.router.owner.description import with_sandbox_paths


async def check_sandboxes(inspected: Inspected) -> list[Finding]:
    """Plan each confined server's start, as the gateway does. A refusal that the gateway reports is not repeated."""
    servers = inspected.config.servers if inspected.config is not None else {}
    confined = {server_id: one for server_id, one in servers.items() if one.enabled and (one.sandbox or one.limits)}
    findings = []
    for server_id, server in confined.items():
        try:
            launch = await asyncio.to_thread(_planned, inspected, server_id, server)
        except SandboxRefusedError as error:
            reason = with_sandbox_paths(str(error), server)
            if reason not in _reported(inspected, server_id):
                findings.append(Finding("sandbox", "problem", f"Server `{server_id}` does not start: {reason}."))
        except OSError:
            pass  # the check of programs says that there is none
        else:
            findings.append(Finding("sandbox", "ok", f"Server `{server_id}` is confined by {launch.how}."))
            for each in launch.unseen:
                said = f"Server `{server_id}`: {with_sandbox_paths(each, server)}."
                findings.append(Finding("sandbox", "note", said))
    return findings


def _planned(inspected: Inspected, server_id: str, server: Server) -> Launch:
    from pointsman.router.downstream.stdio.sandbox import plan, this_host

    argv, own = (str(server.command), *server.args), secret_values(server.env)
    env = child_environment(inspected.environ, own, argv[0], server.inherit_env)
    protected = protected_paths(inspected.state_dir, inspected.used_config or inspected.config_path)
    confined = Confined(server.sandbox, server.limits, server_id)
    return plan(argv, env, server.cwd, confined, this_host(), protected)


def _reported(inspected: Inspected, server_id: str) -> str:
    listed = inspected.status["servers"]["list"] if inspected.status is not None else ()
    return next((str(one["reason"]) for one in listed if one["id"] == server_id), "")
