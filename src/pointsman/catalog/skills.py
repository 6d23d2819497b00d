"""Skills (extension SEP-2640): which entries of servers are valid, and whether a file is what its entry says.

A skill's entry names every file of the skill with its size and SHA-256 digest, and repeats the front matter of its
`SKILL.md`. Nothing here reads a file ahead of need: a file is compared with its entry when a client reads it.
"""

from __future__ import annotations

import logging
import mimetypes
import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import AliasEvent

from pointsman.catalog.definitions import encode_entry
from pointsman.catalog.names import wrap_uri
from pointsman.core.kinds import MAX_URI_CHARS
from pointsman.core.model import Json, ToolSource
from pointsman.providers.visible import visible

logger = logging.getLogger(__name__)

DYNAMIC = "dynamic"  # instead of the files: the content is generated, and has no digests
DIRECTORY_TYPE = "inode/directory"
MAX_FILES = 512  # of a skill, as the extension has it
MAX_SKILL_BYTES = 16 * 1024 * 1024  # of all its files together, as the extension has it
MAX_ENTRY_BYTES = 262_144
MAX_FRONT_MATTER_CHARS = 16_384

_SKILL_FILE = "/SKILL.md"
_MAX_PARENTS = 64  # of a file's URI that are looked up
_MAX_DEPTH = 20  # of front matter
_MAX_LOGGED = 3  # reasons in one line
_NAME = re.compile(r"(?!.*--)[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_FRONT_MATTER = re.compile(r"\ufeff?---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_OPENING = re.compile(r"[\[{]")
_DASHES = re.compile(rf"^[ ]*(?:[-?:][ ]+){{{_MAX_DEPTH}}}", re.MULTILINE)


def skill_entries(source: ToolSource, entries: dict[str, Json], before: dict[str, Json]) -> dict[str, Json]:
    """The valid entries of a list. Others are left out, because hosts must not load them."""
    refused = {uri: why for uri, entry in entries.items() if (why := why_invalid(entry)) is not None}
    if refused:
        reasons = "; ".join(f"{uri!r:.200}: {why}" for uri, why in [*refused.items()][:_MAX_LOGGED])
        logger.warning("server %s: skipped %d skills: %s", source.id, len(refused), reasons)
    return {uri: entry for uri, entry in entries.items() if uri not in refused}


def why_invalid(entry: object) -> str | None:
    """What is wrong with an entry; None if it is valid."""
    if not isinstance(entry, dict) or not isinstance(entry.get("uri"), str):
        return "it has no `uri`"
    encoded = encode_entry(entry)
    if encoded is None or len(encoded) > MAX_ENTRY_BYTES:
        return f"its entry cannot be encoded or is larger than {MAX_ENTRY_BYTES} bytes"
    front_matter = entry.get("frontmatter")
    if not isinstance(front_matter, dict) or not _is_text(front_matter.get("description")):
        return "its `frontmatter` has no `name` and `description`"
    if not _is_visible(front_matter, 0):  # invisible characters cannot be removed, because it must stay verbatim
        return "its `frontmatter` has invisible characters, or is nested too deeply"
    uri: str = entry["uri"]
    return _why_misnamed(uri, front_matter.get("name")) or _why_invalid_files(uri, entry.get("resources"))


def _why_misnamed(uri: str, name: object) -> str | None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return "its `name` is not one to 64 lowercase letters, digits and single hyphens"
    if not uri.endswith(f"/{name}{_SKILL_FILE}"):
        return "its `uri` does not end with `/NAME/SKILL.md`"
    return None


def _why_invalid_files(uri: str, files: object) -> str | None:
    if files == DYNAMIC:
        return None
    if not isinstance(files, list):
        return f"its `resources` are neither a list nor `{DYNAMIC}`"
    if len(files) > MAX_FILES:
        return f"it has more than {MAX_FILES} files"
    folder = uri.removesuffix("SKILL.md")
    if not all(_is_file(file, folder) for file in files):
        return "one of its `resources` lacks a `uri` within the skill, a `digest` or a `size`"
    uris = {file["uri"] for file in files}
    if len(uris) < len(files) or uri not in uris:
        return "its `resources` do not name each file once, `SKILL.md` included"
    if sum(file["size"] for file in files) > MAX_SKILL_BYTES:
        return f"its files have more than {MAX_SKILL_BYTES} bytes"
    return None


def _is_file(file: object, folder: str) -> bool:
    if not isinstance(file, dict):
        return False
    uri, digest, size = file.get("uri"), file.get("digest"), file.get("size")
    return (
        isinstance(uri, str)
        and len(folder) < len(uri) <= MAX_URI_CHARS
        and uri.startswith(folder)
        and isinstance(digest, str)
        and _DIGEST.fullmatch(digest) is not None
        and isinstance(size, int)
        and not isinstance(size, bool)
        and size >= 0
    )


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_visible(value: Any, depth: int) -> bool:
    if depth > _MAX_DEPTH:
        return False
    if isinstance(value, str):
        return visible(value) == value
    if isinstance(value, dict):
        return all(_is_visible(key, depth) and _is_visible(part, depth + 1) for key, part in value.items())
    return not isinstance(value, list) or all(_is_visible(part, depth + 1) for part in value)


def wrap_skill(server_id: str, entry: Json) -> Json:
    """An entry with URIs that lead back to its server."""
    wrapped = {**entry, "uri": wrap_uri(server_id, entry["uri"])}
    if isinstance(entry["resources"], list):
        wrapped["resources"] = [{**file, "uri": wrap_uri(server_id, file["uri"])} for file in entry["resources"]]
    return wrapped


def skills_with(skills: Mapping[str, Json], uri: str) -> list[Json]:
    """The skills that a file is a part of: the one in its own folder, and those around it."""
    return [skill for skill in skills_around(skills, uri) if names_file(skill, uri)]


def skills_around(skills: Mapping[str, Json], uri: str) -> list[Json]:
    """The skills whose folder a file is in, nearest first."""
    around = (skills.get(parent + _SKILL_FILE) for parent in _parents(uri))
    return [skill for skill in around if skill is not None]


def names_file(skill: Json, uri: str) -> bool:
    return skill["uri"] == uri or _file(skill, uri) is not None


def _parents(uri: str) -> Iterator[str]:
    if len(uri) > MAX_URI_CHARS:
        return
    for _ in range(_MAX_PARENTS):
        uri, slash, _ = uri.rpartition("/")
        if not slash:
            return
        yield uri


def _file(skill: Json, uri: str) -> Json | None:
    files = skill["resources"]
    return next((file for file in files if file["uri"] == uri), None) if isinstance(files, list) else None


def mismatch(skill: Json, uri: str, content: bytes) -> str | None:
    """How a file's content differs from what its skill's entry says; None: it does not.

    Parses front matter: run it on a thread.
    """
    file = _file(skill, uri)
    if file is None and skill["resources"] != DYNAMIC:
        return "the skill's entry does not name it"
    if file is not None and len(content) != file["size"]:
        return f"it has {len(content)} bytes instead of {file['size']}"
    if file is not None and "sha256:" + sha256(content).hexdigest() != file["digest"]:
        return "its content does not have the digest of the skill's entry"
    if uri == skill["uri"] and not _has_front_matter(content, skill["frontmatter"]):
        return "its front matter is not that of the skill's entry"
    return None


def _has_front_matter(content: bytes, expected: Json) -> bool:
    """Whether a `SKILL.md` has the front matter of its entry, as YAML 1.2 or 1.1 reads it: `yes` differs."""
    versions: tuple[tuple[int, int] | None, ...] = (None, (1, 1))
    try:
        return any(_is_same(read_front_matter(content, version), expected, 0) for version in versions)
    except ValueError:
        return False


def read_front_matter(content: bytes, version: tuple[int, int] | None = None) -> Any:
    """The front matter of a `SKILL.md`, from an untrusted server. Raises ValueError."""
    block = _FRONT_MATTER.match(content[: 4 * MAX_FRONT_MATTER_CHARS].decode("utf-8", "replace"))
    if block is None or len(block[1]) > MAX_FRONT_MATTER_CHARS or _is_nested_deeply(block[1]):
        raise ValueError("it has no front matter, or one that is too large or nested too deeply")
    try:
        return _yaml(version).load(block[1])
    except (YAMLError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError("its front matter is not YAML that can be read") from error


def _is_nested_deeply(text: str) -> bool:
    """The parser's time grows with the square of the depth."""
    return len(_OPENING.findall(text)) > 10 * _MAX_DEPTH or _DASHES.search(text) is not None


class _WithoutAliases(Composer):
    """A few lines of aliases can expand to millions of values."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.parser.check_event(AliasEvent):
            raise YAMLError("aliases are not read")
        return super().compose_node(parent, index)


class _WithoutDates(SafeConstructor):
    """JSON has no dates, so they stay text."""


_WithoutDates.add_constructor("tag:yaml.org,2002:timestamp", SafeConstructor.construct_yaml_str)


def _yaml(version: tuple[int, int] | None) -> YAML:
    yaml = YAML(typ="safe", pure=True)
    yaml.Composer, yaml.Constructor = _WithoutAliases, _WithoutDates
    if version is not None:
        yaml.version = version
    return yaml


def _is_same(found: Any, expected: Any, depth: int) -> bool:
    """Compare as JSON does: 1 is 1.0, but not true."""
    if depth > _MAX_DEPTH:
        return False
    if isinstance(expected, dict):
        return (
            isinstance(found, dict)
            and {str(key) for key in found} == expected.keys()
            and all(_is_same(part, expected[str(key)], depth + 1) for key, part in found.items())
        )
    if isinstance(expected, list):
        return (
            isinstance(found, list)
            and len(found) == len(expected)
            and all(_is_same(*pair, depth + 1) for pair in zip(found, expected, strict=True))
        )
    return isinstance(found, bool) == isinstance(expected, bool) and bool(found == expected)


def directory(skills: Mapping[str, Json], uri: str) -> list[Json] | None:
    """The direct children of a skill's folder or of one inside it, by the skills' entries; None: no such folder."""
    children: dict[str, Json] = {}
    around = (skills.get(folder + _SKILL_FILE) for folder in (uri, *_parents(uri)))
    for skill in (skill for skill in around if skill is not None):
        files = skill["resources"] if isinstance(skill["resources"], list) else ()
        for file in files:
            if file["uri"].startswith(uri + "/"):
                child = _child(uri, file, skill)
                children.setdefault(child["uri"], child)
    return [*children.values()] or None


def _child(uri: str, file: Json, skill: Json) -> Json:
    name, slash, _ = file["uri"][len(uri) + 1 :].partition("/")
    if slash:
        return {"uri": f"{uri}/{name}", "name": name, "mimeType": DIRECTORY_TYPE}
    child: Json = {"uri": file["uri"], "name": name, "size": file["size"]}
    if (kind := mimetypes.guess_type(name)[0]) is not None:
        child["mimeType"] = kind
    if file["uri"] == skill["uri"]:
        child |= {"name": skill["frontmatter"]["name"], "description": skill["frontmatter"]["description"]}
    return child
