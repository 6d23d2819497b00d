"""`grep_codebase` and `read_file`: the project's source files, by regular expression and by path."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pointsman.archive.archive import Archive
from pointsman.archive.code.globs import Glob, GlobError
from pointsman.archive.code.grep import GrepResult, Match, PatternError, grep
from pointsman.archive.code.guard import (
    ABSOLUTE,
    NEVER_READ,
    OUTSIDE,
    AccessDeniedError,
    IsFolderError,
    PathNotFoundError,
    checked_parts,
)
from pointsman.archive.code.reader import Dependency, ImportParseError, NotTextError, ReadFile
from pointsman.archive.code.reader import read_file as read_with_imports
from pointsman.archive.code.ripgrep import RipgrepMissingError
from pointsman.archive.code.roots import HOW_TO_SET, NoRootsError, RootGoneError, UnknownRootError, relative_to_root
from pointsman.archive.tools.arguments import Arguments
from pointsman.archive.tools.base import ArchiveTool, Call, ToolError
from pointsman.core.errors import BundledCode
from pointsman.core.model import Json

MAX_PATTERN_CHARS = 200
MAX_MATCHES = 100
_HELP = {
    OUTSIDE: "A path must stay inside the project's root, also through symlinks, with / between folders.",
    NEVER_READ: "Secrets, .git and node_modules are neither read nor searched. Read another file.",
}
_RELATIVE = "Paths are relative to the project's root"


def grep_codebase(archive: Archive, arguments: Json, call: Call) -> Json:
    given = Arguments(arguments, as_object=True)
    pattern = given.text("pattern", at_most=MAX_PATTERN_CHARS)
    file_pattern = given.optional_text("filePattern", at_least=0)
    case_sensitive = given.flag("caseSensitive", default=False)
    limit = given.integer("limit", low=1, high=MAX_MATCHES, default=50)
    found = _grep(archive, pattern, file_pattern, case_sensitive, limit)
    answer: Json = {
        "matches": [_match(each) for each in found.matches],
        "pattern": pattern,
        "totalMatches": found.total,
        "filesSearched": found.files,
        "searchTime": found.took_ms,
    }
    return answer | _remarks(pattern, file_pattern, found)


def _grep(archive: Archive, pattern: str, file_pattern: str | None, case_sensitive: bool, limit: int) -> GrepResult:
    try:
        glob = Glob(file_pattern) if file_pattern is not None else None
        return grep(archive.roots, pattern, glob, case_sensitive, limit)
    except GlobError as error:
        help_ = _denied_help(archive.roots, file_pattern or "", str(error))
        raise ToolError(
            "Invalid filePattern",
            code="invalid_parameters",
            help=help_,
            as_object=True,
            filePattern=file_pattern,
            details=str(error),
        ) from None
    except PatternError as error:
        escape = "To search for plain text, put a backslash before each of . * + ? ( ) [ ] { } | ^ $ and \\."
        raise ToolError(
            "Invalid regex pattern",
            code="invalid_parameters",
            help=escape,
            as_object=True,
            pattern=pattern,
            details=str(error),
        ) from None
    except NoRootsError:
        raise _no_roots(pattern=pattern) from None
    except RootGoneError as error:
        raise _root_gone(error, pattern=pattern) from None
    except RipgrepMissingError:
        missing = "ripgrep is not installed in Pointsman's environment; the operator needs to reinstall Pointsman."
        raise ToolError("Search failed", code="not_configured", as_object=True, message=missing) from None


def _match(each: Match) -> Json:
    return {
        "file": each.file,
        "line": each.line,
        "column": each.column,
        "text": each.text,
        "context": {"before": list(each.before), "after": list(each.after)},
    }


def _remarks(pattern: str, file_pattern: str | None, found: GrepResult) -> Json:
    remarks: Json = {}
    if found.total_capped:
        remarks["totalCapped"] = True
    if not found.matches and not found.total_capped:
        remarks["message"] = f"No matches found for pattern '{pattern}'"
    elif not found.matches:
        remarks["message"] = "The search timed out before the first match. Narrow it with filePattern."
    if file_pattern is not None and not found.files and not found.total_capped:
        if Glob(file_pattern).sensitive:
            return remarks | {"details": NEVER_READ, "help": _HELP[NEVER_READ]}
        anywhere = "/" not in file_pattern or file_pattern.startswith("**/")
        hint = "" if anywhere else " Try '**/' before it."
        remarks["help"] = f"No searched file matches filePattern '{file_pattern}'.{hint}"
    return remarks


def read_file(archive: Archive, arguments: Json, call: Call) -> Json:
    given = Arguments(arguments, as_object=True)
    path = given.text("path")
    include = given.flag("includeDeps", default=False)
    depth = given.integer("maxDepth", low=0, high=1, default=1)
    file = _read(archive, path, with_dependencies=include and depth > 0)
    archive.accesses.record(file.root, file.inside)
    return {
        "file": {
            "path": file.path,
            "content": file.content,
            "size": file.size,
            "lines": file.lines,
            "language": file.language,
        },
        "dependencies": [_dependency(each) for each in file.dependencies],
        "metadata": {"module": file.module, "role": file.role, "lastModified": file.modified},
    }


def _read(archive: Archive, path: str, *, with_dependencies: bool) -> ReadFile:
    try:
        return read_with_imports(archive.roots, path, archive.imports if with_dependencies else None)
    except NoRootsError:
        raise _no_roots(path=path) from None
    except RootGoneError as error:
        raise _root_gone(error, path=path) from None
    except PathNotFoundError as error:
        help_ = _not_found_help(archive, error)
        raise ToolError("File not found", code="file_not_found", help=help_, as_object=True, path=path) from None
    except AccessDeniedError as error:
        help_ = _denied_help(archive.roots, path, str(error))
        raise _failure("Permission denied", "permission_denied", path, error, help_) from None
    except NotTextError as error:
        help_ = "Read another file; grep_codebase finds those that contain text."
        raise _failure("Not a text file", "not_text", path, error, help_) from None
    except ImportParseError as error:
        help_ = "To read the file alone, leave out includeDeps."
        code: BundledCode = "timeout" if error.timed_out else "not_parsed"
        raise _failure("Failed to parse imports", code, path, error, help_) from None


def _failure(message: str, code: BundledCode, path: str, error: Exception, help_: str = "") -> ToolError:
    return ToolError(message, code=code, help=help_, as_object=True, path=path, details=str(error))


def _not_found_help(archive: Archive, error: PathNotFoundError) -> str:
    if isinstance(error, UnknownRootError):
        return f"A path begins with the name of one of the roots: {', '.join(sorted(archive.roots))}."
    if isinstance(error, IsFolderError):
        return "This is a folder. Use grep_codebase to find the files in it."
    return f"{_RELATIVE}, as grep_codebase shows them, and are case-sensitive."


def _dependency(each: Dependency) -> Json:
    shown: Json = {"path": each.path, "type": each.kind, "level": 1}
    return shown | ({"contentOmitted": each.omitted_because} if each.content is None else {"content": each.content})


def _denied_help(roots: Mapping[str, Path], path: str, details: str) -> str:
    """The next step after a path (or a glob) was denied."""
    if details != ABSOLUTE:
        return _HELP.get(details, "")
    relative = relative_to_root(roots, path) if roots else None
    if relative is None or not _is_allowed(relative):
        return f"{_RELATIVE}, as grep_codebase shows them."
    return f"{_RELATIVE}: use `{relative}`."


def _is_allowed(path: str) -> bool:
    try:
        checked_parts(path)
    except (AccessDeniedError, PathNotFoundError):
        return False
    return True


def _no_roots(**fields: Any) -> ToolError:
    return ToolError("No roots configured", code="not_configured", help=HOW_TO_SET, as_object=True, **fields)


def _root_gone(error: RootGoneError, **fields: Any) -> ToolError:
    return ToolError(
        "Root not found",
        code="not_configured",
        details=f"The folder of the root `{error}` does not exist.",
        help="The operator can correct it under `roots` of the archive's entry in pointsman.yaml.",
        as_object=True,
        **fields,
    )


GREP_CODEBASE = ArchiveTool(
    name="grep_codebase",
    title="Find usages and callers in the code",
    description=(
        "Search the code by regex: find every place in the source files where a name, string or pattern "
        "appears, with file and line. Shows who calls or invokes a function, its callers, usages, uses, references, "
        "each occurrence; where a class, constant, flag, env var, struct or import is defined, called, used, read or "
        "set, how often, and whether it is still used anywhere. Tells which files or modules import or depend on it, "
        "which to touch and what breaks when you rename, remove or change its signature. Finds the line that prints "
        "an exact error or log message, and lines matching a pattern: calls such as jwt.sign, struct and interface "
        "definitions, TODO comments in the project, hard-coded addresses, old wording, names with a prefix. Good "
        "for exact matches and when semantic search is unavailable. "
        "Respects .gitignore."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "pattern": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_PATTERN_CHARS,
                "description": "Regex pattern to search for, such as jwt\\.sign or TODO; a plain name or message "
                "finds where it is used, called, imported, read or printed",
            },
            "filePattern": {
                "type": "string",
                "description": 'Glob pattern to filter files (e.g., "**/*.ts" for TypeScript files). node_modules, '
                ".git, dist, build, .next, .context and secrets are never searched, other names with a dot in front "
                "only if the pattern says so",
            },
            "caseSensitive": {"type": "boolean", "default": False, "description": "Case-sensitive search"},
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_MATCHES,
                "default": 50,
                "description": "Maximum number of matches to return",
            },
        },
        "required": ["pattern"],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {
            "matches": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "file": {"type": "string"},
                        "line": {"type": "integer"},
                        "column": {"type": "integer", "description": "In characters, from 1"},
                        "text": {"type": "string"},
                        "context": {
                            "type": "object",
                            "properties": {
                                "before": {"type": "array", "items": {"type": "string"}},
                                "after": {"type": "array", "items": {"type": "string"}},
                            },
                            "required": ["before", "after"],
                        },
                    },
                    "required": ["file", "line", "column", "text", "context"],
                },
            },
            "pattern": {"type": "string"},
            "totalMatches": {"type": "integer", "description": "Matching lines, also those beyond the limit"},
            "totalCapped": {"type": "boolean", "description": "There are more: counting was stopped"},
            "filesSearched": {"type": "integer"},
            "searchTime": {"type": "integer", "description": "In milliseconds"},
            "message": {"type": "string"},
            "details": {"type": "string", "description": "Why the files that were asked for are not searched"},
            "help": {"type": "string"},
        },
        "required": ["matches", "pattern", "totalMatches", "filesSearched", "searchTime"],
    },
    run=grep_codebase,
)

READ_FILE = ArchiveTool(
    name="read_file",
    title="Read a source file",
    description=(
        "Read a source file by its path: open, load, show or see the contents of a module, its implementation, or a "
        "config file. With includeDeps it brings along the project files that it imports, pulls in or depends on "
        "(level 1 dependencies). Tracks file access for context scoring. Not for documentation."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "path": {
                "type": "string",
                "minLength": 1,
                "description": "File path relative to project root, such as src/server/auth/AuthService.ts; "
                "where there are several roots it begins with the root's name",
            },
            "includeDeps": {
                "type": "boolean",
                "default": False,
                "description": "Include level 1 dependencies (imports): TypeScript, JavaScript, Python, Go, Rust, Java",
            },
            "maxDepth": {
                "type": "integer",
                "minimum": 0,
                "maximum": 1,
                "default": 1,
                "description": "Dependency tree depth: 1, or 0 for none",
            },
        },
        "required": ["path"],
        "additionalProperties": False,
    },
    output_schema={
        "type": "object",
        "properties": {
            "file": {
                "type": "object",
                "properties": {
                    "path": {"type": "string"},
                    "content": {"type": "string"},
                    "size": {"type": "integer", "description": "In bytes"},
                    "lines": {"type": "integer"},
                    "language": {"type": "string"},
                },
                "required": ["path", "content", "size", "lines", "language"],
            },
            "dependencies": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "path": {"type": "string"},
                        "type": {"enum": ["import", "export", "require", "dynamic", "module"]},
                        "level": {"const": 1},
                        "content": {"type": "string"},
                        "contentOmitted": {"type": "string", "description": "Why there is no content"},
                    },
                    "required": ["path", "type", "level"],
                },
            },
            "metadata": {
                "type": "object",
                "properties": {
                    "module": {"type": "string"},
                    "role": {"enum": ["core", "test", "config", "docs"]},
                    "lastModified": {"type": "string", "format": "date-time"},
                },
                "required": ["module", "role", "lastModified"],
            },
        },
        "required": ["file", "dependencies", "metadata"],
    },
    run=read_file,
)
