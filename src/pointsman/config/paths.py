"""Where the configuration is looked for and where state is kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pointsman.config.settings import Settings

FILE_NAME = "pointsman.yaml"
_OWN = "pointsman"  # our folder inside the user's folders


class NoHomeError(Exception):
    """Nothing says where this user's files are. `str(error)` is for the person at the terminal."""


def find_config(option: Path | None, settings: Settings, environ: Mapping[str, str], cwd: Path) -> Path | None:
    """The configuration file: the one that was named, even if it does not exist, or the first one that does."""
    named = option or settings.config
    if named is not None:
        return named
    here = cwd / FILE_NAME
    if here.exists():
        return here
    users = user_config(settings, environ)
    return users if users.exists() else None


def user_config(settings: Settings, environ: Mapping[str, str]) -> Path:
    """Where a first configuration is written. Raises NoHomeError."""
    folder = settings.config_dir or _xdg("XDG_CONFIG_HOME", ".config", "POINTSMAN_CONFIG_DIR", environ)
    return folder / FILE_NAME


def state_folder(option: Path | None, settings: Settings, environ: Mapping[str, str]) -> Path:
    """Raises NoHomeError."""
    return option or settings.state_dir or _xdg("XDG_STATE_HOME", ".local/state", "POINTSMAN_STATE_DIR", environ)


def _xdg(variable: str, below_home: str, ours: str, environ: Mapping[str, str]) -> Path:
    base = Path(environ.get(variable, ""))
    if base.is_absolute():  # the XDG specification has relative ones ignored
        return base / _OWN
    home = environ.get("HOME")
    try:
        return (Path(home) if home else Path.home()) / below_home / _OWN
    except RuntimeError:
        raise NoHomeError(
            f"This user has no home folder. Set {ours} to a folder that Pointsman may write to."
        ) from None
