"""Settings from the environment (`POINTSMAN_*`). They override the YAML; the command line overrides them."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError

from pointsman.config.errors import ConfigError, ConfigProblem, closest
from pointsman.config.model import NO_WORKERS, GatewayConfig, LogFormat, SearchApi
from pointsman.config.model_errors import choices_of, sentence
from pointsman.config.sections.value_types import DatabaseAddress, RequestKey
from pointsman.config.sections.values import REQUEST_KEY_BYTES

PREFIX = "POINTSMAN_"

LogLevel = Literal["debug", "info", "warning", "error"]


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


class Settings(BaseModel):
    """What the environment sets. Variables are the names below in capitals, with the prefix.

    The text below a setting is its description in docs/reference/configuration.md, which `make docs` writes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    config: Path | None = None
    """The configuration file."""
    config_dir: Path | None = None
    """The configuration folder, instead of `pointsman` in `$XDG_CONFIG_HOME`."""
    state_dir: Path | None = None
    """The state folder; by default `pointsman` in `$XDG_STATE_HOME` (`~/.local/state`)."""
    host: str | None = None
    """Overrides `listen.host`; for `pointsman search-api serve`, `search_api.listen.host`."""
    port: Annotated[int, Field(ge=0, le=65_535)] | None = None
    """Overrides `listen.port`; for `pointsman search-api serve`, `search_api.listen.port`."""
    database: DatabaseAddress | None = None
    """Overrides `state.database`."""
    token: SecretStr | None = None
    """The token that `pointsman stdio` and `pointsman doctor` send, and that `pointsman client` writes."""
    page_public: bool | None = None
    """Overrides `page.public`. For a container whose port is published on the loopback interface only."""
    request_key: RequestKey | None = None
    """A key that precedes those in `state.request_keys`."""
    log_level: Annotated[LogLevel, BeforeValidator(_lower)] = "info"
    """The least important messages that the log has."""
    log_format: Annotated[LogFormat, BeforeValidator(_lower)] | None = None
    """Overrides `log.format`."""


def read_settings() -> Settings:
    """Raises ConfigError, which names the invalid variables.

    An empty variable counts as absent, so `POINTSMAN_HOST=${HOST:-}` in a compose file is harmless.
    """
    given = {name: os.environ.get(PREFIX + name.upper()) for name in Settings.model_fields}
    try:
        return Settings.model_validate({name: value for name, value in given.items() if value})
    except ValidationError as error:
        raise ConfigError(_problems(error)) from None


def apply_overrides(
    config: GatewayConfig,
    settings: Settings,
    *,
    host: str | None = None,
    port: int | None = None,
    file: object = "configuration",
) -> GatewayConfig:
    """The effective configuration: command-line options override the environment, which overrides the file.

    Raises ConfigError, which names `file`: it has a database, and no keys that several gateways could share, or several
    workers.
    """
    listen = config.listen.model_copy(
        update=_given(host=_first(host, settings.host), port=_first(port, settings.port)),
    )
    keys = config.state.request_keys
    if settings.request_key is not None:  # first, so that it seals; the file's keys only open what they sealed
        keys = (settings.request_key, *(key for key in keys if key != settings.request_key))
    state = config.state.model_copy(update=_given(database=settings.database, request_keys=keys))
    if state.database is not None and not state.request_keys:
        raise ConfigError([_missing_keys(str(file))])
    if state.database is not None and config.workers > 1:
        raise ConfigError([ConfigProblem(str(file), None, None, "workers", NO_WORKERS)])
    page = config.page.model_copy(update=_given(public=settings.page_public))
    log = config.log.model_copy(update=_given(format=settings.log_format))
    return config.model_copy(update={"listen": listen, "state": state, "page": page, "log": log})


def apply_search_api_overrides(
    config: GatewayConfig, settings: Settings, *, host: str | None = None, port: int | None = None
) -> GatewayConfig:
    """`apply_overrides` for the search service, which listens on `search_api.listen`."""
    given = _given(host=_first(host, settings.host), port=_first(port, settings.port))
    own = config.search_api or SearchApi()
    own = own.model_copy(update={"listen": own.listen.model_copy(update=given)})
    log = config.log.model_copy(update=_given(format=settings.log_format))
    return config.model_copy(update={"search_api": own, "log": log})


def _missing_keys(file: str) -> ConfigProblem:
    reason = (
        "is required with `state.database`: all gateways on one database seal with the same keys. Write this below "
        f'`state:`, in the configuration of each of them: `request_keys: ["{secrets.token_hex(REQUEST_KEY_BYTES)}"]` '
        "(a new key, made for this message)"
    )
    return ConfigProblem(file, None, None, "state.request_keys", reason)


def _first(option: object, setting: object) -> object:
    return setting if option is None else option


def _given(**values: object) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}


def _problems(error: ValidationError) -> list[ConfigProblem]:
    problems = []
    for detail in error.errors(include_url=False):
        variable = PREFIX + str(detail["loc"][0]).upper()
        choices = choices_of(detail)
        hint = closest(str(detail["input"]), choices) if choices else None
        problems.append(ConfigProblem("environment", None, None, variable, sentence(detail), hint))
    return problems
