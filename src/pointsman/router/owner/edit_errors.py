"""Sentences for an edit of the configuration that cannot be made, for the commands and the page."""

from __future__ import annotations

import shlex
from pathlib import Path

from pointsman.config.edits import InvalidEntryError, NameTakenError, UnknownNameError
from pointsman.config.errors import ConfigError
from pointsman.config.files import ReplaceError
from pointsman.config.yaml.text_edits import EditError

EDIT_ERRORS = (ConfigError, NameTakenError, UnknownNameError, InvalidEntryError, ReplaceError, EditError)


def sentences_of(error: Exception, path: Path, kind: str) -> tuple[str, ...]:
    """What is wrong, and what to do, for one of `EDIT_ERRORS`: nothing was changed. `kind`: of the entry."""
    if isinstance(error, ConfigError):
        return tuple(map(str, error.problems))
    if isinstance(error, NameTakenError):
        return (f"There is already a {kind} `{error.name}` in {path}.",)
    if isinstance(error, UnknownNameError):
        near = f" Did you mean `{error.hint}`?" if error.hint else f" List them with `pointsman {kind} list`."
        if kind == "project":
            near = project_hint(error.name, error.hint)
        return (f"No {kind} `{error.name}` in {path}.{near}",)
    if isinstance(error, InvalidEntryError):
        return (f"{path} was not changed:", *error.messages)
    return (str(error),) if isinstance(error, ReplaceError) else (f"{path}: {error}.",)


def project_hint(name: str, near: str | None) -> str:
    """What to do where there is no project of this name."""
    meant = f" Did you mean `{near}`?" if near else " `pointsman project list` shows them."
    return f"{meant} `pointsman project set {shlex.quote(name)} --create` creates it."
