"""A configuration with a secret in it, for tests of what reads secrets."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from pointsman.config.errors import ConfigError
from pointsman.config.loader import load
from pointsman.config.model import GatewayConfig
from pointsman.router.cli.common.secret_environment import secret_reader as reader_of

SECRET = "s3cret-of-the-tracker"
HASH = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


class File:
    """A configuration with one remote server, whose header is `value`; the command counts its runs in a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "pointsman.yaml"
        self.counter = folder / "runs"
        self.script = folder / "secret.sh"
        self.script.write_text(f"#!/bin/sh\necho run >> {shlex.quote(str(self.counter))}\necho {SECRET}\n")
        self.script.chmod(0o755)
        self.reader = reader_of(os.environ)

    @property
    def runs(self) -> int:
        return len(self.counter.read_text().splitlines()) if self.counter.exists() else 0

    def write(self, value: str, more: str = "") -> None:
        header = '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        self.path.write_text(
            "servers:\n  tracker:\n    url: https://tracker.example/mcp\n"
            f"    headers: {{Authorization: {header}}}\n{more}"
        )

    def load(self, **options: Any) -> GatewayConfig:
        return load(self.path, os.environ, secrets=self.reader, **options)


def header_of(config: GatewayConfig, server_id: str = "tracker") -> str:
    return config.servers[server_id].headers["Authorization"].get_secret_value()


def problem_in(file: File) -> str:
    with pytest.raises(ConfigError) as raised:
        file.load()
    (problem,) = raised.value.problems
    assert problem.key == "servers.tracker.headers.Authorization"
    return problem.reason
