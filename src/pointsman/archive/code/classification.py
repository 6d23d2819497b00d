"""Classifies a file by its path: its language, its module and its role."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

_LANGUAGES = {
    "typescript": "ts tsx mts cts",
    "javascript": "js jsx mjs cjs",
    "python": "py pyi",
    "go": "go",
    "rust": "rs",
    "java": "java",
    "kotlin": "kt kts",
    "scala": "scala",
    "swift": "swift",
    "c": "c h",
    "cpp": "cc cpp cxx hpp hh",
    "csharp": "cs",
    "ruby": "rb",
    "php": "php",
    "shell": "sh bash zsh",
    "sql": "sql",
    "html": "html htm",
    "css": "css scss less",
    "vue": "vue",
    "svelte": "svelte",
    "json": "json jsonc json5",
    "yaml": "yaml yml",
    "toml": "toml",
    "xml": "xml",
    "markdown": "md mdx markdown",
    "restructuredtext": "rst",
    "protobuf": "proto",
    "graphql": "graphql gql",
    "terraform": "tf",
}
_BY_ENDING = {ending: language for language, endings in _LANGUAGES.items() for ending in endings.split()}
_BY_NAME = {"dockerfile": "dockerfile", "makefile": "makefile", "go.mod": "go.mod", "cargo.lock": "toml"}
_PROSE = {"markdown", "restructuredtext"}
_SETTINGS = {"json", "yaml", "toml", "xml", "dockerfile", "makefile", "go.mod"}

# Folders that contain modules rather than being one.
_CONTAINERS = frozenset(
    {
        *("src", "lib", "libs", "app", "apps", "packages", "pkg", "internal", "cmd", "crates", "modules", "features"),
        *("server", "client", "backend", "frontend", "main", "java", "python", "go", "rust"),
        *("test", "tests", "__tests__", "spec", "e2e"),
    }
)
_TEST_FOLDERS = frozenset({"test", "tests", "__tests__", "spec", "specs", "e2e", "testdata", "__mocks__"})
_TEST_NAME = re.compile(r"^test_|^conftest\.py$|_test\.\w+$|_spec\.\w+$|\.(?:test|spec|cy)\.\w+$|Tests?\.(?:java|kt)$")
_CONFIG_NAME = re.compile(
    r"^\.|\.config\.\w+$|\.(?:ini|cfg|conf|properties|lock|editorconfig)$|^(?:setup\.py|requirements.*\.txt)$"
)


def language(path: str) -> str:
    file = PurePosixPath(path)
    return _BY_NAME.get(file.name.lower()) or _BY_ENDING.get(file.suffix[1:].lower(), "text")


def module(path: str, otherwise: str) -> str:
    """The first folder that is more than a container of others; of Java's deep packages the last one."""
    folders = PurePosixPath(path).parts[:-1]
    own = [folder for folder in folders if folder.lower() not in _CONTAINERS]
    if language(path) in ("java", "kotlin", "scala"):
        own.reverse()
    return (own or folders[-1:] or (otherwise,))[0]


def role(path: str) -> str:
    """One of `test`, `docs`, `config` and `core`."""
    file = PurePosixPath(path)
    folders = {folder.lower() for folder in file.parts[:-1]}
    kind = language(path)
    if folders & _TEST_FOLDERS or _TEST_NAME.search(file.name):
        return "test"
    if kind in _PROSE or folders & {"docs", "doc"}:
        return "docs"
    if kind in _SETTINGS or _CONFIG_NAME.search(file.name):
        return "config"
    return "core"
