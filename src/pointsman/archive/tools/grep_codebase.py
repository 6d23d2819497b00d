"""`grep_codebase`: the lines of the project's files that fit a regular expression."""

from __future__ import annotations

from pointsman.archive.archive import Archive
from pointsman.archive.code.globs import Glob, GlobError
from pointsman.archive.code.grep import Found, Match, PatternError, grep
from pointsman.archive.code.guard import NEVER_READ
from pointsman.archive.code.ripgrep import RipgrepMissingError
from pointsman.archive.code.roots import NoRootsError, RootGoneError
from pointsman.archive.tools.arguments import Arguments
from pointsman.archive.tools.base import ArchiveTool, Call, Json, ToolError
from pointsman.archive.tools.code_failures import denied_help, no_roots, root_gone

_LONGEST_PATTERN = 200
_MOST_MATCHES = 100


def run(archive: Archive, arguments: Json, call: Call) -> Json:
    given = Arguments(arguments, as_object=True)
    pattern = given.text("pattern", at_most=_LONGEST_PATTERN)
    file_pattern = given.optional_text("filePattern", at_least=0)
    case_sensitive = given.flag("caseSensitive", default=False)
    limit = given.integer("limit", low=1, high=_MOST_MATCHES, default=50)
    found = _grep(archive, pattern, file_pattern, case_sensitive, limit)
    answer: Json = {
        "matches": [_match(each) for each in found.matches],
        "pattern": pattern,
        "totalMatches": found.total,
        "filesSearched": found.files,
        "searchTime": found.took_ms,
    }
    return answer | _remarks(pattern, file_pattern, found)


def _grep(archive: Archive, pattern: str, file_pattern: str | None, case_sensitive: bool, limit: int) -> Found:
    try:
        glob = Glob(file_pattern) if file_pattern is not None else None
        return grep(archive.roots, pattern, glob, case_sensitive, limit)
    except GlobError as error:
        help_ = denied_help(archive.roots, file_pattern or "", str(error))
        raise ToolError(
            "Invalid filePattern",
            code="invalid_parameters",
            help=help_,
            as_object=True,
            filePattern=file_pattern,
            details=str(error),
        ) from None
    except PatternError as error:
        escape = "To search for it as plain text, put a backslash before each of . * + ? ( ) [ ] { } | ^ $ and \\."
        raise ToolError(
            "Invalid regex pattern",
            code="invalid_parameters",
            help=escape,
            as_object=True,
            pattern=pattern,
            details=str(error),
        ) from None
    except NoRootsError:
        raise no_roots(pattern=pattern) from None
    except RootGoneError as error:
        raise root_gone(error, pattern=pattern) from None
    except RipgrepMissingError:
        missing = "ripgrep is not installed beside Pointsman; the operator installs Pointsman again."
        raise ToolError("Search failed", code="not_configured", as_object=True, message=missing) from None


def _match(each: Match) -> Json:
    return {
        "file": each.file,
        "line": each.line,
        "column": each.column,
        "text": each.text,
        "context": {"before": list(each.before), "after": list(each.after)},
    }


def _remarks(pattern: str, file_pattern: str | None, found: Found) -> Json:
    remarks: Json = {}
    if found.total_capped:
        remarks["totalCapped"] = True
    if not found.matches and not found.total_capped:
        remarks["message"] = f"No matches found for pattern '{pattern}'"
    elif not found.matches:
        remarks["message"] = "The time was up before a match could be shown. Narrow the search with filePattern."
    if file_pattern is not None and not found.files and not found.total_capped:
        if Glob(file_pattern).sensitive:
            return remarks | {"details": NEVER_READ, "help": denied_help({}, file_pattern, NEVER_READ)}
        anywhere = "/" not in file_pattern or file_pattern.startswith("**/")
        hint = "" if anywhere else " Try '**/' before it."
        remarks["help"] = f"No file that is searched fits filePattern '{file_pattern}'.{hint}"
    return remarks


TOOL = ArchiveTool(
    name="grep_codebase",
    title="Search the code by regex",
    description=(
        "Grep the codebase with a regular expression: find in the source code where a function or class is called "
        "or defined, all uses of a name in our code, interface definitions, TODO comments, lines that match a "
        "pattern such as jwt.sign, or which files import a name or contain an exact string. Fast text search; "
        "returns file, line, column and context. Good for exact matches and when semantic search is unavailable. "
        "Respects .gitignore."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "pattern": {
                "type": "string",
                "minLength": 1,
                "maxLength": _LONGEST_PATTERN,
                "description": "Regex pattern to search for, such as jwt\\.sign",
            },
            "filePattern": {
                "type": "string",
                "description": 'Glob pattern to filter files (e.g., "**/*.ts"). node_modules, .git, dist, build, '
                ".next, .context and secrets are never searched, other names with a dot in front only if the pattern "
                "says so",
            },
            "caseSensitive": {"type": "boolean", "default": False, "description": "Case-sensitive search"},
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": _MOST_MATCHES,
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
    run=run,
)
