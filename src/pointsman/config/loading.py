"""Reads the configuration: YAML in, a frozen model out, or all that is wrong with it in one go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from pointsman.config.checks import cross_check
from pointsman.config.clients import adopt
from pointsman.config.document import Document
from pointsman.config.errors import ConfigError, ConfigProblem
from pointsman.config.explain import explain
from pointsman.config.model import GatewayConfig, Token
from pointsman.config.regular_file import NotRegularFileError, open_regular

MAX_BYTES = 8 * 1_048_576


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration, and the texts in it that came from the environment or from files: they may be secrets."""

    config: GatewayConfig
    filled: frozenset[str]


def load(path: Path, environ: Mapping[str, str]) -> GatewayConfig:
    """Raises ConfigError, also for an empty file: nobody means that, and it would take every right away."""
    text = read_text(path)
    if not text.strip():
        raise ConfigError([_whole_file(path, "is empty; `pointsman serve` without any file writes a sample")])
    return parse(text, str(path), environ)


def parse(text: str, file_name: str, environ: Mapping[str, str]) -> GatewayConfig:
    """Raises ConfigError."""
    return examine(text, file_name, environ).config


def examine(text: str, file_name: str, environ: Mapping[str, str]) -> Loaded:
    """Raises ConfigError."""
    document = Document(text, file_name, environ)
    return Loaded(check(document), frozenset(document.filled))


def check(document: Document) -> GatewayConfig:
    """Raises ConfigError."""
    adopt(document)
    cross_check(document)
    try:
        config = GatewayConfig.model_validate(document.data, context={"folder": document.folder})
    except ValidationError as error:
        explain(error, document)
        raise ConfigError(document.problems) from None
    if document.problems:
        raise ConfigError(document.problems)
    return config


def load_tokens(path: Path, environ: Mapping[str, str]) -> Mapping[str, Token]:
    """The tokens alone, whatever is wrong with the rest of the file. Raises ConfigError."""
    document = Document(read_text(path), str(path), environ)
    data = document.data if isinstance(document.data, dict) else {}
    try:
        return GatewayConfig.model_validate({"tokens": data.get("tokens")}).tokens
    except ValidationError as error:
        explain(error, document)
        raise ConfigError(document.problems) from None


def read_text(path: Path) -> str:
    """The text of a configuration file, wherever its line ends are. Raises ConfigError."""
    try:
        with open_regular(path) as file:
            raw = file.read(MAX_BYTES + 1)
    except NotRegularFileError as error:
        reason = f"is a {error.kind}; the configuration is read from a regular file only"
        raise ConfigError([_whole_file(path, reason)]) from None
    except OSError as error:
        raise ConfigError([_whole_file(path, f"cannot be read: {error.strerror}")]) from None
    if len(raw) > MAX_BYTES:
        raise ConfigError([_whole_file(path, f"has more than {MAX_BYTES} bytes")])
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, column = raw.count(b"\n", 0, error.start) + 1, error.start - raw.rfind(b"\n", 0, error.start)
        raise ConfigError([ConfigProblem(str(path), line, column, "", "is not text in UTF-8")]) from None


def _whole_file(path: Path, reason: str) -> ConfigProblem:
    return ConfigProblem(str(path), None, None, "", reason)
