"""Changes that the owner makes by the running daemon: an edit of the file, in effect or taken back, and its audit row.

What a page sends is literal: a reference such as `${NAME}` in it would read the owner's secrets, so it is refused, and
so are the keys that name a program.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pointsman.config.edits import Writer
from pointsman.config.files import ReplaceError, Rewritten, preview, rewrite, take_back
from pointsman.config.model import GatewayConfig
from pointsman.config.yaml.references import secret_references
from pointsman.router.owner.channel import OwnerError
from pointsman.router.owner.edit_errors import EDIT_ERRORS, sentences_of
from pointsman.router.owner.operations import reload
from pointsman.router.owner.parts import Parts

REFERENCE = "${"
PROGRAM_KEYS = frozenset({"command", "args", "env", "inherit_env", "cwd", "envs", "environment", "sandbox"})

Edit = Callable[[Mapping[str, str], Writer], Rewritten]  # calls a function of config/edits.py


async def previewed(parts: Parts, edit: Edit, kind: str) -> Rewritten:
    """The text of the file before and after an edit that is not made. Raises OwnerError."""
    return await asyncio.to_thread(_edited, parts, edit, kind, preview)


async def apply_edit(parts: Parts, edit: Edit, kind: str, asked_by: str, seen: Rewritten) -> Rewritten:
    """Make the edit that the owner has `seen`, and have it in effect; one that the gateway rejects is taken back.

    Raises OwnerError.
    """

    def write_seen(path: Path, change: Callable[[str], str]) -> Rewritten:
        return rewrite(path, lambda text: change(_same(text, seen.before)))

    async with parts.editing:
        change = await asyncio.to_thread(_edited, parts, edit, kind, write_seen)
        answer = await reload(parts, asked_by)
        if not answer["problem"]:
            return change
        path = parts.config_path.absolute()
        if answer["rejected"] and await _taken_back(parts, change):
            raise OwnerError(
                "rejected", f"The gateway rejects this change, so {path} is as it was: {answer['problem']}"
            )
        kept = f"{path} was changed, but the gateway keeps the previous configuration: {answer['problem']}"
        raise OwnerError("rejected", kept)


def require_literal(value: Any) -> None:
    """Refuse references, and keys that name a program, anywhere in what came from a page. Raises OwnerError."""
    if isinstance(value, str):
        if REFERENCE in value:
            raise OwnerError(
                "reference",
                "`${...}` is not accepted here: a reference could send a secret of this machine to another one. "
                "Write it into the configuration file instead.",
            )
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if key in PROGRAM_KEYS:
                raise OwnerError("program", f"`{key}` is not accepted here: a page never names a program.")
            require_literal(key)
            require_literal(item)
    elif isinstance(value, list | tuple):
        for item in value:
            require_literal(item)


def refuse_new_secrets(before: str, after: str) -> str:
    """Return the text of the file after an edit, unless that adds a command or a keyring, in whatever way.

    Raises OwnerError.
    """
    if Counter(secret_references(after)) - Counter(secret_references(before)):
        raise OwnerError(
            "reference",
            "`${cmd:...}` and `${keyring:...}` are not accepted here. Write them into the configuration file instead.",
        )
    return after


def changed_entries(before: GatewayConfig, after: GatewayConfig) -> Iterator[tuple[str, str]]:
    """What a reload changes: `add`, `change` or `remove`, and the path of an entry or key, such as `servers.time`."""
    sections = ("servers", "projects", "tokens")
    for section in sections:
        old, new = getattr(before, section), getattr(after, section)
        for name in dict.fromkeys((*old, *new)):
            if old.get(name) != new.get(name):
                verb = "add" if name not in old else "remove" if name not in new else "change"
                yield verb, f"{section}.{name}"
    for key in GatewayConfig.model_fields:
        if key not in sections and getattr(before, key) != getattr(after, key):
            yield "change", key


def _same(text: str, seen: str) -> str:
    if text != seen:
        raise OwnerError("changed", "Another program has changed the configuration file at this moment. Try again.")
    return text


def _edited(parts: Parts, edit: Edit, kind: str, write: Writer) -> Rewritten:
    path = parts.config_path

    def write_without_secrets(path: Path, change: Callable[[str], str]) -> Rewritten:
        return write(path, lambda text: refuse_new_secrets(text, change(text)))

    try:
        return edit(os.environ, write_without_secrets)
    except EDIT_ERRORS as error:
        raise OwnerError("invalid_edit", "\n".join(sentences_of(error, path, kind))) from error


async def _taken_back(parts: Parts, change: Rewritten) -> bool:
    """Unless the file before it was rejected, too, or somebody else has changed it since."""
    try:
        if not await asyncio.to_thread(take_back, parts.config_path, change):
            return False
        if not (await reload(parts))["rejected"]:
            return True
        await asyncio.to_thread(take_back, parts.config_path, Rewritten(change.after, change.before))
    except ReplaceError:
        pass
    return False
