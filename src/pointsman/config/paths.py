"""Locates the configuration file and the state folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pointsman.config.settings import Settings  # imports pydantic, which a quick command does without

FILE_NAME = "pointsman.yaml"
SEARCH_API_FILE_NAME = "search-api.yaml"
_OWN = "pointsman"  # our folder inside the user's folders


class NoHomeError(Exception):
    """The user has no home folder. `str(error)` is shown to the person at the terminal."""


def find_config(option: Path | None, settings: Settings, environ: Mapping[str, str], cwd: Path) -> Path | None:
    """The file that was named, whether or not it exists, or else the first existing one; None: there is none."""
    named = option or settings.config
    if named is not None:
        return named
    in_cwd = cwd / FILE_NAME
    if in_cwd.exists():
        return in_cwd
    of_user = user_config(settings, environ)
    return of_user if of_user.exists() else None


def find_search_api_config(
    option: Path | None, settings: Settings, environ: Mapping[str, str], cwd: Path
) -> Path | None:
    """`find_config` for the search service, which shares a gateway's file only if that has a section `search_api`."""
    from pointsman.config.purpose import is_for_search_api  # imports the loader, which other commands do without

    named = option or settings.config
    if named is not None:
        return named
    for folder in (cwd, user_config(settings, environ).parent):
        if (folder / SEARCH_API_FILE_NAME).exists():
            return folder / SEARCH_API_FILE_NAME
        if is_for_search_api(folder / FILE_NAME):
            return folder / FILE_NAME
    return None


def user_config(settings: Settings, environ: Mapping[str, str], file_name: str = FILE_NAME) -> Path:
    """The path at which the first configuration is created. Raises NoHomeError."""
    folder = settings.config_dir or _xdg("XDG_CONFIG_HOME", ".config", "POINTSMAN_CONFIG_DIR", environ)
    return folder / file_name


def state_folder(option: Path | None, settings: Settings, environ: Mapping[str, str]) -> Path:
    """Raises NoHomeError."""
    return option or settings.state_dir or usual_state_folder(environ)


def usual_state_folder(environ: Mapping[str, str]) -> Path:
    """The folder where neither an option nor a setting names one. Raises NoHomeError."""
    return _xdg("XDG_STATE_HOME", ".local/state", "POINTSMAN_STATE_DIR", environ)


def _xdg(variable: str, below_home: str, override: str, environ: Mapping[str, str]) -> Path:
    base = Path(environ.get(variable, ""))
    if base.is_absolute():  # the XDG specification says to ignore relative ones
        return base / _OWN
    home = environ.get("HOME")
    try:
        return (Path(home) if home else Path.home()) / below_home / _OWN
    except RuntimeError:
        raise NoHomeError(
            f"This user has no home folder. Set {override} to a folder that Pointsman can write to."
        ) from None
