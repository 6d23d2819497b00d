"""The imports of a file as written: plain data exchanged between the archive and its parser process."""

from __future__ import annotations

from pathlib import PurePosixPath

import msgspec

READY = b"go"  # the first bytes that the parser process writes

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
    """One import as written, not resolved."""

    kind: str  # import, export, require, dynamic, module
    target: str  # `./token`, `..pkg.mod`, `crate::a::b`, `com.acme.*`
    names: tuple[str, ...] = ()  # Python: the imported names; Rust: the inline modules around it
    file: str = ""  # Rust: the path in `#[path]`


class Parsed(msgspec.Struct, frozen=True, array_like=True):
    imports: tuple[Import, ...] = ()
    error_line: int = 0  # of the first syntax error, or 0
    package: str = ""  # Java


class ParseRequest(msgspec.Struct, frozen=True, array_like=True):
    grammar: str
    source: bytes


def grammar_of(path: str) -> str | None:
    return GRAMMARS.get(PurePosixPath(path).suffix.lower())
