"""All checks, in the order in which a person would look."""

from __future__ import annotations

import dataclasses

from pointsman.router.doctor.accounts import check_accounts
from pointsman.router.doctor.archive_stores import check_archive_stores
from pointsman.router.doctor.client_file import check_client
from pointsman.router.doctor.cloud_search import check_cloud_search
from pointsman.router.doctor.configuration import (
    check_configuration,
    check_place,
    check_restart,
    check_secrets,
    check_tokens,
)
from pointsman.router.doctor.findings import Check, Finding, Inspected
from pointsman.router.doctor.gateway import (
    check_approvals,
    check_definitions,
    check_gateway,
    check_own_server,
    check_refused_clients,
    check_servers,
)
from pointsman.router.doctor.patterns import check_patterns
from pointsman.router.doctor.sandboxes import check_sandboxes
from pointsman.router.doctor.sign_in import check_sign_in
from pointsman.router.doctor.surroundings import (
    check_certificates,
    check_clock,
    check_database,
    check_programs,
    check_state_folder,
)
from pointsman.router.owner.client import NoGatewayError, OperationError, ask
from pointsman.router.serving.state_folder import RunningGateway, find_running
from pointsman.router.serving.workers_file import read_note

CHECKS: tuple[Check, ...] = (
    check_configuration,
    check_place,
    check_restart,
    check_tokens,
    check_sign_in,
    check_secrets,
    check_state_folder,
    check_database,
    check_archive_stores,
    check_gateway,
    check_servers,
    check_accounts,
    check_definitions,
    check_patterns,
    check_approvals,
    check_own_server,
    check_programs,
    check_sandboxes,
    check_refused_clients,
    check_cloud_search,
    check_certificates,
    check_clock,
    check_client,
)


async def examine(inspected: Inspected) -> list[Finding]:
    """Run all checks and return their findings in order."""
    findings: list[Finding] = []
    for check in CHECKS:
        found = check(inspected)
        findings += found if isinstance(found, list) else await found
    return findings


def with_gateway(inspected: Inspected) -> Inspected:
    """Add what the running gateway says of itself, if one uses the state folder."""
    running, note = find_running(inspected.state_dir), read_note(inspected.state_dir)
    if running is None and note is not None and note.url:
        running = RunningGateway(note.url, note.process, note.configuration)
    inspected = dataclasses.replace(inspected, workers=note)
    if running is None:
        return inspected
    try:
        status = ask(inspected.state_dir, "status")
        names = ask(inspected.state_dir, "names")
    except (NoGatewayError, OperationError) as error:
        return dataclasses.replace(inspected, running=running, channel_problem=str(error))
    running = RunningGateway(status["url"], status["process"], status["configuration"])  # of replicas, the one asked
    tools, held = tuple(names["tools"]), tuple(names.get("heldTools", ()))  # one that was not restarted says less
    return dataclasses.replace(inspected, running=running, status=status, tools=tools, held_tools=held)
