"""What the environment says (`POINTSMAN_*`). The command line beats it, and it beats the YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from pointsman.config.errors import ConfigError, ConfigProblem, near
from pointsman.config.explain import choices_of, sentence
from pointsman.config.model import DatabaseAddress, GatewayConfig, RequestKey, SearchApi

PREFIX = "POINTSMAN_"

LogLevel = Literal["debug", "info", "warning", "error"]


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


class Settings(BaseSettings):
    """An empty variable counts as absent, so that `POINTSMAN_HOST=${HOST:-}` in a compose file does no harm."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, frozen=True, extra="ignore")

    config: Path | None = None
    config_dir: Path | None = None
    state_dir: Path | None = None
    host: str | None = None
    port: Annotated[int, Field(ge=0, le=65_535)] | None = None
    database: DatabaseAddress | None = None
    token: SecretStr | None = None  # of a client: `pointsman stdio` and the like
    request_key: RequestKey | None = None
    log_level: Annotated[LogLevel, BeforeValidator(_lower)] = "info"


def read_settings() -> Settings:
    """Raises ConfigError, which names the variables."""
    try:
        return Settings()
    except ValidationError as error:
        raise ConfigError(_problems(error)) from None


def overlaid(
    config: GatewayConfig, settings: Settings, *, host: str | None = None, port: int | None = None
) -> GatewayConfig:
    """The configuration that holds: options of the command line over the environment over the file."""
    listen = config.listen.model_copy(
        update=_given(host=_first(host, settings.host), port=_first(port, settings.port)),
    )
    keys = config.state.request_keys
    if settings.request_key is not None:  # first, so that it seals; the file's keys still open what they sealed
        keys = (settings.request_key, *(key for key in keys if key != settings.request_key))
    state = config.state.model_copy(update=_given(database=settings.database, request_keys=keys))
    return config.model_copy(update={"listen": listen, "state": state})


def overlaid_search_api(
    config: GatewayConfig, settings: Settings, *, host: str | None = None, port: int | None = None
) -> GatewayConfig:
    """The same for a process that is the search service: here `search_api.listen` is what it listens on."""
    given = _given(host=_first(host, settings.host), port=_first(port, settings.port))
    own = config.search_api or SearchApi()
    return config.model_copy(
        update={"search_api": own.model_copy(update={"listen": own.listen.model_copy(update=given)})}
    )


def _first(option: object, setting: object) -> object:
    return setting if option is None else option


def _given(**values: object) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}


def _problems(error: ValidationError) -> list[ConfigProblem]:
    problems = []
    for detail in error.errors(include_url=False):
        variable = PREFIX + str(detail["loc"][0]).upper()
        choices = choices_of(detail)
        hint = near(str(detail["input"]), choices) if choices else None
        problems.append(ConfigProblem("environment", None, None, variable, sentence(detail), hint))
    return problems
