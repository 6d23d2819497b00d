"""The gateway's own skill, which teaches the two tools: the files in `skill/` and their entry."""

from __future__ import annotations

import mimetypes
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from pointsman.catalog.skills import read_front_matter
from pointsman.core.model import Json

OWN_ID = ""  # in place of a server's id; no server has it

_FOLDER = Path(__file__).with_name("skill")
_NAME = "find-and-run-tools"
_ROOT = "skill://pointsman"


class OwnSkill(Struct, frozen=True):
    entry: Json
    files: Mapping[str, Json]  # by URI, as `resources/read` gives them


@cache
def own_skill() -> OwnSkill:
    paths = [_FOLDER / _NAME / "SKILL.md", *sorted((_FOLDER / _NAME).glob("references/*"))]
    contents = {f"{_ROOT}/{path.relative_to(_FOLDER).as_posix()}": path.read_bytes() for path in paths}
    uri = next(iter(contents))
    resources = [
        {"uri": file, "digest": "sha256:" + sha256(content).hexdigest(), "size": len(content)}
        for file, content in contents.items()
    ]
    entry: Json = {"uri": uri, "frontmatter": read_front_matter(contents[uri]), "resources": resources}
    files: dict[str, Json] = {
        file: {"uri": file, "mimeType": mimetypes.guess_type(file)[0] or "text/plain", "text": content.decode()}
        for file, content in contents.items()
    }
    return OwnSkill(entry, files)
