"""Commands that edit the configuration: find the file, report errors, and have a running gateway apply it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pointsman.config.edits import InvalidEntryError, NameTakenError, UnknownNameError
from pointsman.config.files import ReplaceError, Rewritten, take_back
from pointsman.config.settings import read_settings
from pointsman.config.yaml.text_edits import EditError
from pointsman.router.cli.common.options import (
    CommandError,
    ConfigCommandError,
    note,
    report_config_errors,
    require_config,
)
from pointsman.router.cli.common.owner import owned_folder, progress
from pointsman.router.owner.client import NoGatewayError, OperationError, ask

RELOAD_S = 30.0
SETTLE_S = 120.0
NO_GATEWAY = "No gateway runs now; the change takes effect when one starts."


@dataclass(frozen=True, slots=True)
class Edited:
    """A configuration file, and the gateway that uses it, if one runs."""

    path: Path
    state_dir: Path
    running: bool

    @classmethod
    def find(cls, config_file: Path | None, state_dir: Path | None) -> Edited:
        """The file that was named, or that of the running gateway, or the one that a gateway would use."""
        folder = owned_folder(state_dir)
        try:
            used = Path(ask(folder, "about")["configuration"])
        except (NoGatewayError, OperationError):
            used = None
        with report_config_errors():
            path = config_file or used or require_config(None, read_settings())
        running = used is not None and _same(path, used)
        if used is not None and not running:
            note(f"The running gateway uses another configuration, {used}; this change does not concern it.")
        return cls(path, folder, running)

    def apply(self, change: Rewritten) -> None:
        """Let the running gateway reload the file. An edit that it rejects is taken back, and ends the command."""
        if not self.running:
            return
        answer = self._ask("reload", timeout_s=RELOAD_S)
        problem = answer["problem"]
        if not problem:
            return
        if answer.get("rejected") and self._restored(change):
            raise ConfigCommandError(
                f"The running gateway rejects this change, so {self.path} is as it was before:", *problem.split("\n")
            )
        raise CommandError(
            f"{self.path} was changed, but the running gateway keeps the previous configuration:", *problem.split("\n")
        )

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

    def server(self, server_id: str) -> dict[str, Any] | None:
        """Wait until a server has started or failed; None if no gateway runs."""
        if not self.running:
            return None
        with progress(f"Waiting for `{server_id}` ..."):
            found: dict[str, Any] = self._ask("settled_server", timeout_s=SETTLE_S, server=server_id)
        return found

    def _ask(self, operation: str, *, timeout_s: float, **parameters: Any) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = ask(self.state_dir, operation, timeout_s=timeout_s, **parameters)
        except (NoGatewayError, OperationError) as error:
            raise CommandError(f"{self.path} was changed. {error}") from error
        return answer


@contextmanager
def report_edit_errors(path: Path, kind: str = "entry") -> Iterator[None]:
    """Turn the errors of an edit into sentences: nothing was changed."""
    try:
        with report_config_errors():
            yield
    except NameTakenError as error:
        raise CommandError(f"There is already a {kind} `{error.name}` in {path}.") from None
    except UnknownNameError as error:
        near = f" Did you mean `{error.hint}`?" if error.hint else f" List them with `pointsman {kind} list`."
        raise CommandError(f"No {kind} `{error.name}` in {path}.{near}") from None
    except ReplaceError as error:
        raise CommandError(str(error)) from error
    except InvalidEntryError as error:
        raise ConfigCommandError(f"{path} was not changed:", *error.messages) from error
    except EditError as error:
        raise CommandError(f"{path}: {error}.") from error


def environ() -> dict[str, str]:
    return dict(os.environ)


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return one.absolute() == other.absolute()
