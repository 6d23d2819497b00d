"""`pointsman doctor`: diagnose an installation."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import os
import sys
from pathlib import Path

import click

from pointsman.config.errors import ConfigError
from pointsman.config.paths import find_config, state_folder
from pointsman.config.settings import Settings, apply_overrides, read_settings
from pointsman.router.cli.options import (
    NO_CONFIG,
    config_option,
    json_option,
    load_gateway_config,
    report_config_errors,
    state_dir_option,
)
from pointsman.router.observe.doctor import Inspected, examine


@click.command()
@config_option
@state_dir_option
@json_option
def doctor(config_file: Path | None, state_dir: Path | None, as_json: bool) -> None:
    """Check the configuration, the gateway and the search service. Exits with 1 if there is a problem.

    Also checks the gateway's servers if POINTSMAN_TOKEN holds a token.
    """
    with report_config_errors():
        settings = read_settings()
        inspected = _inspected(config_file, state_folder(state_dir, settings, os.environ), settings)
    logging.getLogger("pointsman").addHandler(logging.NullHandler())  # the findings replace the log
    findings = asyncio.run(examine(inspected))
    well = all(finding.level != "problem" for finding in findings)
    if as_json:
        listed = [dataclasses.asdict(finding) for finding in findings]
        click.echo(json.dumps({"ok": well, "findings": listed}, indent=2, ensure_ascii=False))
    else:
        for finding in findings:
            click.echo(f"{finding.level:8} {finding.check:14} {finding.message}")
    if not well:
        sys.exit(1)


def _inspected(config_file: Path | None, state_dir: Path, settings: Settings) -> Inspected:
    token = settings.token.get_secret_value() if settings.token is not None else None
    path = find_config(config_file, settings, os.environ, Path.cwd())
    if path is None:
        return Inspected(None, (NO_CONFIG,), "", state_dir, token)
    try:
        config = apply_overrides(load_gateway_config(path), settings)
    except ConfigError as error:
        return Inspected(None, tuple(str(problem) for problem in error.problems), str(path), state_dir, token)
    return Inspected(config, (), str(path), state_dir, token)
