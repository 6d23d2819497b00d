"""Commands that edit the configuration: find the file, report errors, and have a running gateway apply it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pointsman.config.edits import InvalidEntryError, NameTakenError, UnknownNameError
from pointsman.config.errors import closest
from pointsman.config.files import ReplaceError, Rewritten, take_back
from pointsman.config.loader import read_text
from pointsman.config.paths import find_config
from pointsman.config.settings import read_settings
from pointsman.config.yaml.document import Document
from pointsman.config.yaml.text_edits import EditError
from pointsman.router.cli.common.options import (
    NO_CONFIG,
    CommandError,
    ConfigCommandError,
    NoGatewayCommandError,
    note,
    report_config_errors,
)
from pointsman.router.cli.common.owner import owned_folder, progress
from pointsman.router.owner.client import ALIVE_S, LOG_STEP, NoGatewayError, OperationError, ask
from pointsman.router.owner.edit_errors import project_hint, sentences_of
from pointsman.router.serving.state_folder import RunningGateway, find_running

RELOAD_S = 30.0
SETTLE_S = 120.0
NO_GATEWAY = "No gateway runs now; the change takes effect when one starts."


@dataclass(frozen=True, slots=True)
class Edited:
    """A configuration file, and the gateway that uses it, if one runs."""

    path: Path
    state_dir: Path
    running: bool
    other: Path | None = None  # the file of the running gateway, where that is another one
    pending: str = NO_GATEWAY  # where `running` is False: when the change takes effect

    @classmethod
    def find(cls, config_file: Path | None, state_dir: Path | None) -> Edited:
        """`find_any`, where a file is required. Raises ConfigCommandError if there is none."""
        found = cls.find_any(config_file, state_dir)
        if found is None:
            raise ConfigCommandError(NO_CONFIG)
        return found

    @classmethod
    def find_any(cls, config_file: Path | None, state_dir: Path | None) -> Edited | None:
        """Decide which file a command uses, and say it where two could be meant; None: there is none.

        It is the file that was named, or that of the running gateway, or the one that a gateway would use.
        Raises NoGatewayCommandError if no file was named, and a gateway runs that does not answer.
        """
        folder = owned_folder(state_dir)
        used = used_config(folder)
        silent = find_running(folder) if used is None else None
        if silent is not None:
            return cls._beside_silent(silent, config_file, folder)
        with report_config_errors():
            usual = find_config(None, read_settings(), os.environ, Path.cwd()) if config_file is None else None
        path = config_file or used or usual
        if path is None:
            return None
        if used is None:
            return cls(path, folder, running=False)
        if not _same(path, used):
            return cls._of_no_gateway(path, folder, used)
        if usual is not None and not _same(usual, used):
            note(f"The running gateway uses {used}, and so does this command; to use {usual}, pass --config.")
        return cls(path, folder, running=True)

    @classmethod
    def _beside_silent(cls, silent: RunningGateway, config_file: Path | None, folder: Path) -> Edited:
        """The file that was named, beside a gateway that runs and does not answer."""
        who = f"The gateway with the state folder {folder} (process {silent.pid}) does not answer"
        used = Path(silent.configuration) if silent.configuration else None
        if config_file is None:
            which = f"--config {shlex.quote(str(used))}, which is its configuration" if used else "--config FILE"
            raise NoGatewayCommandError(
                f"{who}, and nothing was changed. {LOG_STEP}. To go on without it, pass {which}."
            )
        if used is None:
            return cls(config_file, folder, running=False, pending=f"{who}, so it may not use {config_file}.")
        if not _same(config_file, used):
            return cls._of_no_gateway(config_file, folder, used)
        return cls(config_file, folder, running=False, pending=f"{who}; it reads {config_file} when it does again.")

    @classmethod
    def _of_no_gateway(cls, path: Path, folder: Path, used: Path) -> Edited:
        note(f"The running gateway uses another configuration, {used}; a change of {path} does not concern it.")
        return cls(path, folder, running=False, other=used)

    def apply(self, change: Rewritten) -> None:
        """Let the running gateway reload the file. An edit that it rejects is taken back, and ends the command."""
        problem = self.offer(change)
        if problem:
            raise CommandError(*problem.split("\n"))

    def offer(self, change: Rewritten) -> str:
        """`apply`, but return the sentence that says why the gateway does not use a change that stays; "": it does."""
        return self.offer_removal(change)[0]

    def offer_removal(self, change: Rewritten) -> tuple[str, bool]:
        """`offer`, and whether the gateway has withdrawn the tokens that the file no longer has all the same."""
        if not self.running:
            return "", False
        try:
            answer: dict[str, Any] = ask(self.state_dir, "reload", timeout_s=RELOAD_S)
        except (NoGatewayError, OperationError) as error:
            return f"{self.path} was changed. {error}", False
        except KeyboardInterrupt:
            untold = "The command did not wait for the gateway, which reads it by itself."
            return f"{self.path} was changed. {untold}", False
        problem = answer["problem"]
        if problem and answer.get("rejected") and self._restored(change):
            raise ConfigCommandError(
                f"The running gateway rejects this change, so {self.path} is as it was before:", *problem.split("\n")
            )
        kept = f"{self.path} was changed, but the running gateway keeps the previous configuration:\n{problem}"
        return (kept, bool(answer.get("tokensWithdrawn"))) if problem else ("", True)

    def note_pending(self) -> None:
        """Say that no gateway uses the change yet, unless it was said that the running one uses another file."""
        if not self.running and self.other is None:
            note(self.pending)

    def _restored(self, change: Rewritten) -> bool:
        """Take the change back, unless the gateway has rejected the file before it, too, or it was changed since."""
        try:
            if not take_back(self.path, change):
                return False
            if not self._ask("reload", timeout_s=RELOAD_S).get("rejected"):
                return True
            take_back(self.path, Rewritten(change.after, change.before))
        except ReplaceError:
            pass
        return False

    def server(self, server_id: str, done: str) -> dict[str, Any] | None:
        """Wait until a server has started or failed; None if no gateway runs. `done` says what the file has by now."""
        if not self.running:
            return None
        try:
            with progress(f"Waiting for `{server_id}` ... (Ctrl-C ends the wait)"):
                found: dict[str, Any] = self._ask("settled_server", timeout_s=SETTLE_S, server=server_id)
        except KeyboardInterrupt:
            raise CommandError(
                f"{done}. The command did not wait for it to start: `pointsman server list` shows how it is, "
                f"`pointsman server remove {server_id}` removes it."
            ) from None
        return found

    def _ask(self, operation: str, *, timeout_s: float, **parameters: Any) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = ask(self.state_dir, operation, timeout_s=timeout_s, **parameters)
        except (NoGatewayError, OperationError) as error:
            raise CommandError(f"{self.path} was changed. {error}") from error
        return answer


def require_projects(path: Path, names: Iterable[str]) -> None:
    """Check that the configuration has these projects. Raises ConfigCommandError, ConfigError (it is not YAML)."""
    known = project_names(path)
    for name in names:
        if name not in (*known, "*", ""):
            raise ConfigCommandError(f"No project `{name}` in {path}.{project_hint(name, closest(name, known))}")


def project_names(path: Path) -> list[str]:
    """The projects of a configuration, whatever else is wrong with it. Raises ConfigError (it is not YAML)."""
    data = Document(read_text(path), str(path), os.environ).data
    projects = data.get("projects") if isinstance(data, dict) else None
    return list(projects) if isinstance(projects, dict) else []


def reload_after_undo(path: Path, folder: Path) -> None:
    """Let the running gateway read a file that was put back, if it uses that. Raises CommandError."""
    used = used_config(folder)
    if used is not None and _same(path, used):
        Edited(path, folder, running=True).apply(Rewritten("", ""))


@contextmanager
def report_edit_errors(path: Path, kind: str = "entry") -> Iterator[None]:
    """Turn the errors of an edit into sentences: nothing was changed."""
    try:
        with report_config_errors():
            yield
    except (NameTakenError, UnknownNameError, InvalidEntryError) as error:
        raise ConfigCommandError(*sentences_of(error, path, kind)) from error
    except (ReplaceError, EditError) as error:
        raise CommandError(*sentences_of(error, path, kind)) from error


def used_config(folder: Path) -> Path | None:
    """The configuration of the gateway that runs with this state folder; None: none runs, or it does not answer."""
    try:
        return Path(ask(folder, "about", timeout_s=ALIVE_S)["configuration"])
    except (NoGatewayError, OperationError):
        return None


def environ() -> dict[str, str]:
    return dict(os.environ)


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return one.absolute() == other.absolute()
