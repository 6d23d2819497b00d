"""`read_file`: one file of the project, with the files that it imports if they are wanted."""

from __future__ import annotations

from pointsman.archive.archive import Archive
from pointsman.archive.code.guard import AccessDeniedError, IsFolderError, PathNotFoundError
from pointsman.archive.code.reader import Dependency, ImportParseError, NotTextError, ReadFile, read_file
from pointsman.archive.code.roots import NoRootsError, RootGoneError, UnknownRootError
from pointsman.archive.tools.arguments import Arguments
from pointsman.archive.tools.base import ArchiveTool, Call, Code, Json, ToolError
from pointsman.archive.tools.code_failures import denied_help, no_roots, root_gone


def run(archive: Archive, arguments: Json, call: Call) -> Json:
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
        return read_file(archive.roots, path, archive.imports if with_dependencies else None)
    except NoRootsError:
        raise no_roots(path=path) from None
    except RootGoneError as error:
        raise root_gone(error, path=path) from None
    except PathNotFoundError as error:
        hint = _hint(archive, error)
        raise ToolError("File not found", code="file_not_found", help=hint, as_object=True, path=path) from None
    except AccessDeniedError as error:
        help_ = denied_help(archive.roots, path, str(error))
        raise _failure("Permission denied", "permission_denied", path, error, help_) from None
    except NotTextError as error:
        raise _failure("Not a text file", "not_text", path, error) from None
    except ImportParseError as error:
        alone = "The file alone can be read: leave out includeDeps."
        code: Code = "timeout" if error.late else "not_parsed"
        raise _failure("Failed to parse imports", code, path, error, alone) from None


def _failure(said: str, code: Code, path: str, error: Exception, help_: str = "") -> ToolError:
    return ToolError(said, code=code, help=help_, as_object=True, path=path, details=str(error))


def _hint(archive: Archive, error: PathNotFoundError) -> str:
    if isinstance(error, UnknownRootError):
        return f"A path begins with the name of one of the roots: {', '.join(sorted(archive.roots))}."
    if isinstance(error, IsFolderError):
        return "This is a folder. Ask for a file in it; grep_codebase names files."
    return "Paths are relative to the project's root, as grep_codebase shows them; capitals count."


def _dependency(each: Dependency) -> Json:
    shown: Json = {"path": each.path, "type": each.kind, "level": 1}
    return shown | ({"contentOmitted": each.left_out} if each.content is None else {"content": each.content})


TOOL = ArchiveTool(
    name="read_file",
    title="Read a source file with its imports",
    description=(
        "Open and read a source file of the project by its path: see its code, show the contents of a config file, "
        "or the implementation of a module. With includeDeps it brings along the project files that it imports "
        "(level 1 dependencies). Tracks file access for context scoring. Never reads secrets such as .env, nor "
        "more than 1 MB. Not for documentation."
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
    run=run,
)
