"""The contract's examples and error cases of `read_file` and `grep_codebase`, called through a gateway."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from typing import Any

import jsonschema_rs
import pytest

from pointsman.archive.tools.codebase import GREP_CODEBASE, READ_FILE
from tests.archive.code.test_contract import AUTH, MODIFIED, TREE
from tests.archive.code.trees import write
from tests.archive.harness import Caller, opened

SERVICE = "src/server/auth/AuthService.ts"
SCHEMAS = {tool.name: tool.output_schema for tool in (READ_FILE, GREP_CODEBASE)}


@pytest.fixture(scope="module")
async def archive(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Caller]:
    folder = tmp_path_factory.mktemp("gateway")
    root = write(folder / "app", TREE)
    (root / "large.txt").write_bytes(b"x" * ((1 << 20) + 1))
    (root / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0")
    (root / "out.ts").symlink_to(write(folder / "outside", {"private.ts": "jwt.sign\n"}) / "private.ts")
    os.utime(root / SERVICE, (MODIFIED, MODIFIED))
    lifted = {"POINTSMAN_ARCHIVE_RATE_LIMITS": '{"read_file": 0, "grep_codebase": 0}'}
    async with opened("gateway", folder, roots={"app": root}, env=lifted) as caller:
        yield caller


async def result(archive: Caller, name: str, **arguments: Any) -> dict[str, Any]:
    """What the gateway hands on must still be what the tool declares."""
    answer = await archive.result(name, **arguments)
    assert jsonschema_rs.is_valid(SCHEMAS[name], answer)
    return answer


# read_file


async def test_a_file_is_read_alone_and_with_what_it_imports(archive: Caller) -> None:
    alone = await result(archive, "read_file", path=SERVICE, includeDeps=False)
    assert alone == {
        "file": {"path": SERVICE, "content": AUTH, "size": len(AUTH), "lines": 11, "language": "typescript"},
        "dependencies": [],
        "metadata": {"module": "auth", "role": "core", "lastModified": "2025-01-15T09:00:00Z"},
    }
    whole = await result(archive, "read_file", path=SERVICE, includeDeps=True, maxDepth=1)
    found = ("src/server/auth/TokenManager.ts", "src/server/users/UserRepository.ts")
    wanted = [{"path": path, "type": "import", "level": 1, "content": TREE[path]} for path in found]
    assert whole == alone | {"dependencies": wanted}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"path": "invalid/path.ts"}, {"error": "File not found"}),
        (
            {"path": "file.ts", "includeDeps": True},
            {"error": "Failed to parse imports", "details": "Syntax error at line 15"},
        ),
        ({"path": ".env"}, {"error": "Permission denied"}),
        ({"path": ".git/config"}, {"error": "Permission denied"}),
        ({"path": "node_modules/x/index.js"}, {"error": "Permission denied"}),
        ({"path": "../../../etc/passwd"}, {"error": "Permission denied"}),
        ({"path": "/etc/passwd"}, {"error": "Permission denied"}),
        ({"path": "src/../../outside/private.ts"}, {"error": "Permission denied"}),
        ({"path": "out.ts"}, {"error": "Permission denied"}),
        ({"path": "large.txt"}, {"error": "Permission denied"}),
        ({"path": "picture.png"}, {"error": "Not a text file"}),
    ],
)
async def test_what_cannot_be_read_is_an_error_with_the_path(
    archive: Caller, arguments: dict[str, Any], said: dict[str, str]
) -> None:
    answer = await archive.failure("read_file", **arguments)
    assert json.loads(answer.text) == answer.json
    assert answer.json.items() >= (said | {"path": arguments["path"]}).items()


# grep_codebase


async def test_a_match_has_its_place_and_the_lines_round_it(archive: Caller) -> None:
    answer = await result(archive, "grep_codebase", pattern="jwt.sign", caseSensitive=False)
    assert answer.pop("searchTime") >= 0
    assert answer == {
        "matches": [
            {
                "file": SERVICE,
                "line": 8,
                "column": 19,
                "text": "    const token = jwt.sign(payload, SECRET);",
                "context": {
                    "before": ["  // Generate JWT token", "  generateToken(payload) {"],
                    "after": ["    return token;", "  }"],
                },
            }
        ],
        "pattern": "jwt.sign",
        "totalMatches": 1,
        "filesSearched": 10,  # text without a dot before its name, of at most 1 MB
    }


@pytest.mark.parametrize(
    ("arguments", "files"),
    [
        (
            {"pattern": "interface.*Context", "filePattern": "**/*.ts", "limit": 20},
            ["src/server/auth/TokenManager.ts"],
        ),
        (
            {"pattern": "function handleAuth", "caseSensitive": True, "filePattern": "src/server/**/*.ts"},
            ["src/server/handlers.ts"],
        ),
        ({"pattern": "function handleAuth", "limit": 1}, ["src/client/handlers.ts"]),
        ({"pattern": "SECRET=", "filePattern": ".env"}, []),
    ],
)
async def test_a_search_can_be_narrowed(archive: Caller, arguments: dict[str, Any], files: list[str]) -> None:
    answer = await result(archive, "grep_codebase", **arguments)
    assert [match["file"] for match in answer["matches"]] == files


async def test_no_matches_are_an_ordinary_answer(archive: Caller) -> None:
    answer = await result(archive, "grep_codebase", pattern="nonexistent")
    assert (answer["matches"], answer["totalMatches"]) == ([], 0)
    assert answer["message"] == "No matches found for pattern 'nonexistent'"


async def test_a_pattern_that_is_none_is_an_error_with_the_pattern(archive: Caller) -> None:
    answer = await archive.failure("grep_codebase", pattern="[invalid(")
    assert json.loads(answer.text) == answer.json
    assert (answer.json["error"], answer.json["pattern"]) == ("Invalid regex pattern", "[invalid(")


# both


@pytest.mark.parametrize(
    ("name", "arguments", "at_fault"),
    [
        ("read_file", {}, "path"),
        ("read_file", {"path": ""}, "path"),
        ("read_file", {"path": "x", "includeDeps": "yes"}, "includeDeps"),
        ("read_file", {"path": "x", "maxDepth": 2}, "maxDepth"),
        ("grep_codebase", {"pattern": ""}, "pattern"),
        ("grep_codebase", {"pattern": "x" * 201}, "pattern"),
        ("grep_codebase", {"pattern": "x", "limit": 0}, "limit"),
        ("grep_codebase", {"pattern": "x", "limit": 101}, "limit"),
        ("grep_codebase", {"pattern": "x", "caseSensitive": 1}, "caseSensitive"),
    ],
)
async def test_invalid_parameters_are_named_in_the_words_of_the_contract(
    archive: Caller, name: str, arguments: dict[str, Any], at_fault: str
) -> None:
    answer = await archive.failure(name, **arguments)
    assert answer.json["error"] == "Invalid parameters"
    assert [each["path"] for each in answer.json["details"]] == [at_fault]


async def test_no_answer_names_a_place_of_the_machine(
    archive: Caller, tmp_path_factory: pytest.TempPathFactory
) -> None:
    said = [(await archive.call("read_file", {"path": path})).text for path in ("out.ts", "src", "../x", "nothing")]
    said += [(await archive.call("grep_codebase", {"pattern": pattern})).text for pattern in ("(", "main", "\0")]
    assert str(tmp_path_factory.getbasetemp()) not in "".join(said)
