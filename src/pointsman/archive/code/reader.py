"""Reads one file of a project, with its classification and the files it imports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from pointsman.archive.code import guard
from pointsman.archive.code.classification import language, module, role
from pointsman.archive.code.guard import AccessDeniedError, GuardedFile, PathNotFoundError
from pointsman.archive.code.imports.parser import ImportParser, ParseError, ParseTimeoutError
from pointsman.archive.code.imports.resolve import resolve
from pointsman.archive.code.imports.syntax import Parsed, grammar_of
from pointsman.archive.code.roots import Root, in_root

DEPENDENCY_BYTES = 256 * 1024  # of content, for all dependencies of one answer


class NotTextError(Exception):
    """The file is not UTF-8 text; the message says where."""


class ImportParseError(Exception):
    """No import could be parsed; the message says why."""

    def __init__(self, reason: str, *, timed_out: bool = False) -> None:
        super().__init__(reason)
        self.timed_out = timed_out


@dataclass(frozen=True, slots=True)
class Dependency:
    path: str
    kind: str
    content: str | None
    omitted_because: str  # why there is no content; empty if there is


@dataclass(frozen=True, slots=True)
class ReadFile:
    root: str
    path: str  # as shown: with the root's name where there are several
    inside: str  # in the root
    content: str
    size: int
    lines: int
    language: str
    module: str
    role: str
    modified: str
    dependencies: tuple[Dependency, ...]


def read_file(roots: Mapping[str, Path], path: str, parser: ImportParser | None) -> ReadFile:
    """One file; with a parser, its direct dependencies too.

    Raises:
        NoRootsError, AccessDeniedError, PathNotFoundError: from the guard and the roots.
        NotTextError: it is not UTF-8.
        ImportParseError: the dependencies were requested and no import could be parsed.
    """
    root, file = in_root(roots, path, lambda root, inside: (root, guard.read(root.folder, inside)))
    content = _text(file.content)
    dependencies = () if parser is None else tuple(_dependencies(root, file, parser))
    return ReadFile(
        root=root.name,
        path=root.display_path(file.path),
        inside=file.path,
        content=content,
        size=len(file.content),
        lines=content.count("\n") + (not content.endswith("\n") and content != ""),
        language=language(file.path),
        module=module(file.path, root.name),
        role=role(file.path),
        modified=datetime.fromtimestamp(int(file.modified), UTC).isoformat().replace("+00:00", "Z"),
        dependencies=dependencies,
    )


def _dependencies(root: Root, file: GuardedFile, parser: ImportParser) -> Iterator[Dependency]:
    grammar = grammar_of(file.path)
    if grammar is None:
        return
    left = DEPENDENCY_BYTES
    for path, kind in resolve(root.folder, file.path, grammar, _parse(parser, grammar, file.content)).items():
        content, reason = _content(root, path, left)
        left -= len(content.encode()) if content is not None else 0
        yield Dependency(root.display_path(path), kind, content, reason)


def _parse(parser: ImportParser, grammar: str, content: bytes) -> Parsed:
    try:
        parsed = parser.parse(grammar, content)
    except ParseError as error:
        raise ImportParseError(str(error), timed_out=isinstance(error, ParseTimeoutError)) from None
    if parsed.error_line and not parsed.imports:
        raise ImportParseError(f"Syntax error at line {parsed.error_line}")
    return parsed


def _content(root: Root, path: str, left: int) -> tuple[str | None, str]:
    try:
        file = guard.read(root.folder, path)
        if len(file.content) > left:
            return None, f"the contents of all dependencies together would exceed {DEPENDENCY_BYTES // 1024} KB"
        return _text(file.content), ""
    except (AccessDeniedError, NotTextError) as error:
        return None, str(error)
    except PathNotFoundError:
        return None, "it no longer exists"


def _text(content: bytes) -> str:
    if (zero := content.find(b"\0")) >= 0:
        raise NotTextError(f"a zero byte at offset {zero}: it is a binary file")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NotTextError(f"not UTF-8: byte 0x{content[error.start]:02x} at offset {error.start}") from None


class AccessLog(Protocol):
    """Counts which files are read."""

    def record(self, root: str, path: str) -> None:
        """Record that a file was read. Never blocks and never raises."""
        ...


class NullAccessLog:
    """For an archive without a store."""

    def record(self, root: str, path: str) -> None:
        pass
