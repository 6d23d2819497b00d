"""`pointsman doctor`: diagnose an installation."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from pointsman.config.errors import ConfigError
from pointsman.config.paths import find_config, state_folder
from pointsman.config.settings import Settings, apply_overrides, read_settings
from pointsman.core.escape import escaped
from pointsman.router.cli.common.options import (
    NO_CONFIG,
    edited_config_option,
    json_option,
    load_gateway_config,
    report_config_errors,
    state_dir_option,
)
from pointsman.router.cli.common.output import echo, paint, print_json
from pointsman.router.cli.common.owner import progress
from pointsman.router.clients.dialects import DIALECTS
from pointsman.router.doctor.configuration import gone
from pointsman.router.doctor.examination import examine, with_gateway
from pointsman.router.doctor.findings import Finding, Inspected

_COLOURS = {"ok": "green", "note": "yellow", "problem": "red"}


@click.command()
@click.option("--client", type=click.Choice([*DIALECTS]), help="Also check the file of this client.")
@edited_config_option
@state_dir_option
@json_option
def doctor(client: str | None, config_file: Path | None, state_dir: Path | None, as_json: bool) -> None:
    """Check everything, and say what to do. Exits with 1 if something needs a person.

    Looks at the configuration, the running gateway with all its servers, the clients that it refused lately, programs,
    certificates, the clock and the search service. A token in POINTSMAN_TOKEN is tried, too.
    """
    with report_config_errors():
        settings = read_settings()
    logging.getLogger("pointsman").addHandler(logging.NullHandler())  # the findings replace the log
    with report_config_errors(), progress("Looking ..."):
        inspected = _inspected(config_file, state_folder(state_dir, settings, os.environ), settings, client)
        findings = asyncio.run(examine(inspected))
    well = all(finding.level != "problem" for finding in findings)
    if as_json:
        listed = [dataclasses.asdict(finding) for finding in findings]
        print_json({"ok": well, "findings": listed})
    else:
        for line in _lines(findings):
            echo(line)
    if not well:
        sys.exit(1)


def _lines(findings: list[Finding]) -> Iterator[str]:
    for finding in findings:
        yield f"{paint(f'{finding.level:8}', _COLOURS[finding.level])} {finding.check:14} {escaped(finding.message)}"
        for line in finding.lines:
            yield f"{'':23} | {escaped(line)}"


def _inspected(config_file: Path | None, state_dir: Path, settings: Settings, client: str | None) -> Inspected:
    token = settings.token.get_secret_value() if settings.token is not None else None
    found = with_gateway(Inspected(None, (NO_CONFIG,), None, state_dir, token, client=client, environ=os.environ))
    used = found.used_config
    path = config_file or used or find_config(None, settings, os.environ, Path.cwd())
    nothing = dataclasses.replace(found, config_path=path)
    if path is None:
        return nothing
    if path == used and not path.exists():
        return dataclasses.replace(nothing, problems=(gone(path),))
    try:
        config = apply_overrides(load_gateway_config(path), settings, file=path)
    except ConfigError as error:
        return dataclasses.replace(nothing, problems=tuple(str(problem) for problem in error.problems))
    return dataclasses.replace(nothing, config=config, problems=())
