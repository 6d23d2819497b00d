"""What a file imports, as its grammar sees it: plain data that passes between the archive and its parser."""

from __future__ import annotations

from pathlib import PurePosixPath

import msgspec

READY = b"go"  # what the parser says first

GRAMMARS = {
    ".ts": "typescript",
    ".mts": "typescript",
    ".cts": "typescript",
    ".tsx": "tsx",
    ".js": "javascript",
    ".mjs": "javascript",
    ".cjs": "javascript",
    ".jsx": "javascript",
    ".py": "python",
    ".pyi": "python",
    ".go": "go",
    ".rs": "rust",
    ".java": "java",
}


class Import(msgspec.Struct, frozen=True, array_like=True):
    """One import as it is written: nothing is resolved yet."""

    kind: str  # import, export, require, dynamic, module
    target: str  # `./token`, `..pkg.mod`, `crate::a::b`, `com.acme.*`
    names: tuple[str, ...] = ()  # Python: what is taken from it; Rust: the inline modules that it stands in
    file: str = ""  # Rust: where `#[path]` says that the module is


class Parsed(msgspec.Struct, frozen=True, array_like=True):
    imports: tuple[Import, ...] = ()
    error_line: int = 0  # the first line that the grammar could not make sense of, or 0
    package: str = ""  # Java


class Question(msgspec.Struct, frozen=True, array_like=True):
    grammar: str
    source: bytes


def grammar_of(path: str) -> str | None:
    return GRAMMARS.get(PurePosixPath(path).suffix.lower())
