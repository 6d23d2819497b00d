"""`pointsman config`: validate the configuration, or print the effective one."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import click
from ruamel.yaml import YAML

from pointsman.config.errors import ConfigError
from pointsman.config.loader import advice, examine, read_text
from pointsman.config.mask import mask_config
from pointsman.config.model import GatewayConfig
from pointsman.config.sections.server import Server
from pointsman.config.settings import apply_overrides, read_settings
from pointsman.router.cli.common.edited import Edited
from pointsman.router.cli.common.options import (
    edited_config_option,
    json_option,
    load_gateway_config,
    note,
    report_config_errors,
    state_dir_option,
)
from pointsman.router.cli.common.output import echo, print_json
from pointsman.router.cli.common.owner import owned_folder


@click.group()
def config() -> None:
    """Validate the configuration, or show the effective one."""


@config.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@edited_config_option
@state_dir_option
@json_option
def validate(file: Path | None, config_file: Path | None, state_dir: Path | None, as_json: bool) -> None:
    """Report all problems in FILE. Default: the configuration in effect."""
    path = file or config_file or Edited.find(None, state_dir).path
    try:
        loaded = apply_overrides(load_gateway_config(path), read_settings(), file=path)
    except ConfigError as error:
        if as_json:
            print_json({"ok": False, "problems": [dataclasses.asdict(problem) for problem in error.problems]})
        else:
            echo(str(error), err=True)
        sys.exit(2)
    remarks = (*advice(loaded), *loaded.notes, *_sandbox_remarks(loaded, path, owned_folder(state_dir)))
    if as_json:
        print_json({"ok": True, "problems": [], **({"advice": remarks} if remarks else {})})
        return
    echo(f"{path}: ok, {_counts(loaded)}")
    for remark in remarks:
        note(remark)


@config.command()
@edited_config_option
@state_dir_option
@json_option
def show(config_file: Path | None, state_dir: Path | None, as_json: bool) -> None:
    """Print the effective configuration with defaults and environment, secrets masked."""
    path = config_file or Edited.find(None, state_dir).path
    with report_config_errors():
        settings = read_settings()
        loaded = examine(read_text(path), str(path), os.environ)
        effective = apply_overrides(loaded.config, settings, file=path)
    shown = mask_config(effective, loaded.external_texts)
    if as_json:
        print_json(shown)
    else:
        echo(f"# {path} with defaults and environment; secrets are masked\n{_as_yaml(shown)}", nl=False)


def _sandbox_remarks(config: GatewayConfig, path: Path, state_dir: Path) -> Iterator[str]:
    """Paths of sandboxes with which a server would not be started."""
    confined = {one: server for one, server in config.servers.items() if server.enabled and server.sandbox is not None}
    if not confined:
        return
    from pointsman.router.downstream.stdio.launch import protected_paths
    from pointsman.router.downstream.stdio.sandbox import path_problems
    from pointsman.router.owner.description import with_sandbox_paths

    protected = protected_paths(state_dir, path)
    for server_id, server in confined.items():
        assert server.sandbox is not None  # as chosen
        for problem in path_problems(server.sandbox, protected):
            yield f"Server `{server_id}` would not be started: {with_sandbox_paths(problem, server)}."
        for each in _unseen_arguments(server, protected):
            yield f"Server `{server_id}`: {with_sandbox_paths(each, server)}."


def _unseen_arguments(server: Server, protected: Sequence[Path]) -> Sequence[str]:
    from pointsman.router.downstream.bundled import secret_values
    from pointsman.router.downstream.stdio.environment import child_environment
    from pointsman.router.downstream.stdio.sandbox import unseen_arguments

    assert server.sandbox is not None  # as chosen
    argv = (str(server.command), *server.args)
    env = child_environment(os.environ, secret_values(server.env), argv[0], server.inherit_env)
    return unseen_arguments(argv, env, server.cwd, server.sandbox, protected)


def _counts(config: GatewayConfig) -> str:
    parts = ((config.servers, "server"), (config.projects, "project"), (config.tokens, "token"))
    return ", ".join(f"{len(entries)} {word}{'' if len(entries) == 1 else 's'}" for entries, word in parts)


def _as_yaml(shown: dict[str, Any]) -> str:
    yaml = YAML()  # keeps the order of keys
    yaml.width = 1000
    text = StringIO()
    yaml.dump(shown, text)
    return text.getvalue()
