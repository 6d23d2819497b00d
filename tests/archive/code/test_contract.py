"""Every example, error case, limit and default that the contract names for `read_file` and `grep_codebase`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from pointsman.archive.archive import Archive
from pointsman.archive.code import grep
from pointsman.archive.code.imports.parser import ImportParser
from tests.archive.code.tool_calls import TOOLS, Answer, CallTool, calling
from tests.archive.code.trees import write

AUTH = """import { TokenManager } from "./TokenManager"
import { UserRepository } from "@/users/UserRepository"
import jwt from "jsonwebtoken"

export class AuthService {
  // Generate JWT token
  generateToken(payload) {
    const token = jwt.sign(payload, SECRET);
    return token;
  }
}
"""
TREE = {
    "src/server/auth/AuthService.ts": AUTH,
    "src/server/auth/TokenManager.ts": "export class TokenManager {}\ninterface RequestContext {}\n",
    "src/server/users/UserRepository.ts": "export class UserRepository {}\n",
    "src/server/handlers.ts": "function handleAuth() {}\nfunction HandleAuth() {}\n",
    "src/client/handlers.ts": "function handleAuth() {}\n",
    "src/index.ts": "export function main() {}\n",
    "file.ts": "\n" * 14 + "function ((( {\n",
    "broken.ts": 'import "./src/index"\nfunction ((( {\n',
    "notes.md": "interface of the Context\n",
    ".env": "SECRET=x\n",
    ".gitignore": "*.log\n",
    "tsconfig.json": '{"compilerOptions": {"paths": {"@/*": ["./src/server/*"]}}} // aliases\n',
}
MODIFIED = 1_736_931_600  # 2025-01-15T09:00:00Z


class Noted:
    def __init__(self) -> None:
        self.files: list[tuple[str, str]] = []

    def record(self, root: str, path: str) -> None:
        self.files.append((root, path))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = write(tmp_path_factory.mktemp("contract") / "app", TREE)
    (root / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0")
    (root / "latin.txt").write_bytes("café".encode("latin-1"))
    (root / "large.txt").write_bytes(b"x" * (1 << 20) + b"x")
    os.utime(root / "src/server/auth/AuthService.ts", (MODIFIED, MODIFIED))
    return root


@pytest.fixture
def noted() -> Noted:
    return Noted()


@pytest.fixture
def call(tree: Path, noted: Noted, parser: ImportParser) -> CallTool:
    return calling(Archive({"app": tree}, access_log=noted, imports=parser))


def fits_its_schema(name: str, answer: Answer) -> bool:
    return jsonschema_rs.is_valid(TOOLS[name].output_schema, answer.content)


# read_file


def test_a_simple_read_gives_the_file_alone(call: CallTool) -> None:
    answer = call("read_file", {"path": "src/server/auth/AuthService.ts", "includeDeps": False})
    assert answer.content == {
        "file": {
            "path": "src/server/auth/AuthService.ts",
            "content": AUTH,
            "size": len(AUTH),
            "lines": 11,
            "language": "typescript",
        },
        "dependencies": [],
        "metadata": {"module": "auth", "role": "core", "lastModified": "2025-01-15T09:00:00Z"},
    }
    assert fits_its_schema("read_file", answer)


def test_dependencies_come_with_their_content(call: CallTool) -> None:
    asked = {"path": "src/server/auth/AuthService.ts", "includeDeps": True, "maxDepth": 1}
    answer = call("read_file", asked)
    found = ("src/server/auth/TokenManager.ts", "src/server/users/UserRepository.ts")
    assert answer.content["dependencies"] == [
        {"path": path, "type": "import", "level": 1, "content": TREE[path]} for path in found
    ]
    assert answer.content["file"]["content"] == AUTH
    assert fits_its_schema("read_file", answer)
    del asked["maxDepth"]
    assert call("read_file", asked) == answer


def test_a_depth_of_none_gives_none(call: CallTool) -> None:
    answer = call("read_file", {"path": "src/server/auth/AuthService.ts", "includeDeps": True, "maxDepth": 0})
    assert answer.content["dependencies"] == []


def test_a_missing_file_is_not_found(call: CallTool) -> None:
    answer = call("read_file", {"path": "invalid/path.ts"})
    assert answer.is_error
    assert (answer.content["error"], answer.content["path"]) == ("File not found", "invalid/path.ts")


def test_imports_that_cannot_be_parsed_are_an_error_with_a_line(call: CallTool) -> None:
    answer = call("read_file", {"path": "file.ts", "includeDeps": True})
    assert answer.is_error
    said = {key: answer.content[key] for key in ("error", "path", "details")}
    assert said == {"error": "Failed to parse imports", "path": "file.ts", "details": "Syntax error at line 15"}
    assert not call("read_file", {"path": "file.ts"}).is_error


def test_a_broken_file_with_imports_is_no_error(call: CallTool) -> None:
    answer = call("read_file", {"path": "broken.ts", "includeDeps": True})
    assert [each["path"] for each in answer.content["dependencies"]] == ["src/index.ts"]


@pytest.mark.parametrize(
    "path",
    [
        ".env",
        "../../../etc/passwd",
        "/etc/passwd",
        ".git/config",
        "node_modules/x/index.js",
        "src/../.env",
        "large.txt",
    ],
)
def test_a_blocked_path_is_denied_as_it_was_asked(call: CallTool, noted: Noted, path: str) -> None:
    answer = call("read_file", {"path": path})
    assert answer.is_error
    assert (answer.content["error"], answer.content["path"]) == ("Permission denied", path)
    assert noted.files == []


@pytest.mark.parametrize(
    ("path", "details"),
    [
        ("/etc/passwd", "Absolute paths not allowed"),
        ("/etc/no-such-file", "Absolute paths not allowed"),
        ("C:/Users/x", "Absolute paths not allowed"),
        ("\\\\host\\share", "Absolute paths not allowed"),
        ("../../../etc/passwd", "Path traversal not allowed"),
        ("src/../../x", "Path traversal not allowed"),
        ("..\\x", "Path traversal not allowed"),
        (".env", "Access to sensitive paths denied"),
        (".env.local", "Access to sensitive paths denied"),
        (".git/config", "Access to sensitive paths denied"),
        ("node_modules/x/index.js", "Access to sensitive paths denied"),
        ("keys/server.pem", "Access to sensitive paths denied"),
    ],
)
def test_a_denied_path_has_the_details_of_the_contract(call: CallTool, path: str, details: str) -> None:
    answer = call("read_file", {"path": path})
    assert (answer.content["error"], answer.content["details"]) == ("Permission denied", details)


def test_an_absolute_path_inside_the_root_is_answered_with_the_relative_one(call: CallTool, tree: Path) -> None:
    for path in (f"{tree}/src/index.ts", f"{tree}//src/./server/../index.ts"):
        answer = call("read_file", {"path": path})
        assert (answer.content["error"], answer.content["path"]) == ("Permission denied", path)
        assert answer.content["details"] == "Absolute paths not allowed"
        assert answer.content["help"] == "Paths are relative to the project's root: use `src/index.ts`."


def test_with_several_roots_the_relative_path_begins_with_the_name_of_the_nearest(
    tree: Path, parser: ImportParser
) -> None:
    call = calling(Archive({"app": tree, "server": tree / "src/server"}, access_log=Noted(), imports=parser))
    inner = call("read_file", {"path": f"{tree}/src/server/handlers.ts"})
    assert inner.content["help"].endswith("use `server/handlers.ts`.")
    outer = call("read_file", {"path": f"{tree}/src/index.ts"})
    assert outer.content["help"].endswith("use `app/src/index.ts`.")


def test_absolute_paths_outside_are_answered_alike_whatever_is_there(call: CallTool, tree: Path) -> None:
    asked = ("/etc/passwd", "/no/such/file", str(tree.parent), f"{tree}/../x", f"{tree}-too/a.ts", f"{tree}/.env")
    answers = [call("read_file", {"path": path}).content for path in asked]
    assert len({(each["error"], each["details"], each["help"]) for each in answers}) == 1
    assert "ask for" not in answers[0]["help"]


@pytest.mark.parametrize(
    ("path", "details"), [("picture.png", "binary file"), ("latin.txt", "not UTF-8: byte 0xe9 at offset 3")]
)
def test_what_is_no_text_is_said_to_be_none(call: CallTool, path: str, details: str) -> None:
    answer = call("read_file", {"path": path})
    assert answer.is_error
    assert (answer.content["error"], answer.content["path"]) == ("Not a text file", path)
    assert details in answer.content["details"]


def test_a_folder_is_not_found_and_said_to_be_one(call: CallTool) -> None:
    answer = call("read_file", {"path": "src"})
    assert answer.content["error"] == "File not found"
    assert "folder" in answer.content["help"]


def test_each_read_is_noted_and_its_dependencies_are_not(call: CallTool, noted: Noted) -> None:
    call("read_file", {"path": "src/../src/server/auth/AuthService.ts", "includeDeps": True})
    call("read_file", {"path": "app/.gitignore"})
    call("read_file", {"path": "nothing"})
    assert noted.files == [("app", "src/server/auth/AuthService.ts"), ("app", ".gitignore")]


def test_contents_of_dependencies_have_a_budget(tmp_path: Path, parser: ImportParser) -> None:
    sizes = {"a": 200_000, "b": 100_000, "c": 50_000, "d": 1_100_000}
    write(tmp_path, {f"{name}.py": "#" * size for name, size in sizes.items()})
    write(tmp_path, {"main.py": "import a, b, c, d\n"})
    answer = calling(Archive({"app": tmp_path}, access_log=Noted(), imports=parser))(
        "read_file", {"path": "main.py", "includeDeps": True}
    )
    given = {each["path"]: len(each.get("content", "")) for each in answer.content["dependencies"]}
    assert given == {"a.py": 200_000, "b.py": 0, "c.py": 50_000, "d.py": 0}
    reasons = {each["path"]: each["contentOmitted"] for each in answer.content["dependencies"] if "content" not in each}
    assert "256 KB" in reasons["b.py"]
    assert "larger than 1 MB" in reasons["d.py"]
    assert fits_its_schema("read_file", answer)


# grep_codebase


def test_a_simple_search_answers_place_text_and_context(call: CallTool) -> None:
    answer = call("grep_codebase", {"pattern": "jwt.sign", "caseSensitive": False})
    assert answer.content.pop("searchTime") >= 0
    assert answer.content == {
        "matches": [
            {
                "file": "src/server/auth/AuthService.ts",
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
        "filesSearched": 11,  # a picture is no text
    }


def files(answer: Answer) -> list[str]:
    assert fits_its_schema("grep_codebase", answer)
    return [match["file"] for match in answer.content["matches"]]


def test_typescript_files_only(call: CallTool) -> None:
    answer = call("grep_codebase", {"pattern": "interface.*Context", "filePattern": "**/*.ts", "limit": 20})
    assert files(answer) == ["src/server/auth/TokenManager.ts"]
    assert answer.content["filesSearched"] == 8


def test_a_case_sensitive_function_search(call: CallTool) -> None:
    asked = {"pattern": "function handleAuth", "caseSensitive": True, "filePattern": "src/server/**/*.ts"}
    answer = call("grep_codebase", asked)
    assert files(answer) == ["src/server/handlers.ts"]
    assert len(files(call("grep_codebase", asked | {"caseSensitive": False}))) == 2


def test_an_invalid_regex_is_an_error_with_the_pattern(call: CallTool) -> None:
    answer = call("grep_codebase", {"pattern": "[invalid("})
    assert answer.is_error
    assert (answer.content["error"], answer.content["pattern"]) == ("Invalid regex pattern", "[invalid(")
    assert answer.content["details"] == "unclosed character class"


def test_no_matches_are_an_ordinary_answer(call: CallTool) -> None:
    answer = call("grep_codebase", {"pattern": "nonexistent"})
    assert not answer.is_error
    assert (answer.content["matches"], answer.content["totalMatches"]) == ([], 0)
    assert answer.content["message"] == "No matches found for pattern 'nonexistent'"
    assert files(answer) == []


def test_the_limit_is_kept_and_fifty_by_default(tmp_path: Path, parser: ImportParser) -> None:
    write(tmp_path, {"many.txt": "hit\n" * 120})
    call = calling(Archive({"app": tmp_path}, access_log=Noted(), imports=parser))
    assert len(files(call("grep_codebase", {"pattern": "hit"}))) == 50
    answer = call("grep_codebase", {"pattern": "hit", "limit": 100})
    assert (len(files(answer)), answer.content["totalMatches"]) == (100, 120)
    assert "totalCapped" not in answer.content


def test_a_count_that_was_stopped_says_so(tmp_path: Path, parser: ImportParser) -> None:
    write(tmp_path, {f"{number}.txt": "hit\n" * 6_000 for number in range(2)})
    answer = calling(Archive({"app": tmp_path}, access_log=Noted(), imports=parser))(
        "grep_codebase", {"pattern": "hit"}
    )
    assert (answer.content["totalMatches"], answer.content["totalCapped"]) == (10_000, True)
    assert fits_its_schema("grep_codebase", answer)


def test_a_search_without_time_says_so_and_not_that_there_is_nothing(
    call: CallTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grep, "HARD_S", 0.0)
    answer = call("grep_codebase", {"pattern": "jwt"})
    assert not answer.is_error
    assert (files(answer), answer.content["totalCapped"]) == ([], True)
    assert "timed out" in answer.content["message"]


@pytest.mark.parametrize("file_pattern", ["", "../**", "/etc/*", "!*.ts", "{a", "src\\*.ts"])
def test_an_invalid_file_pattern_is_an_error_with_a_reason(call: CallTool, file_pattern: str) -> None:
    answer = call("grep_codebase", {"pattern": "x", "filePattern": file_pattern})
    assert answer.is_error
    assert (answer.content["error"], answer.content["filePattern"]) == ("Invalid filePattern", file_pattern)
    assert answer.content["details"]


@pytest.mark.parametrize(
    ("file_pattern", "details"),
    [
        ("/etc/*", "Absolute paths not allowed"),
        ("../**", "Path traversal not allowed"),
        ("src/../../*", "Path traversal not allowed"),
    ],
)
def test_a_file_pattern_that_leads_out_has_the_details_of_the_contract(
    call: CallTool, file_pattern: str, details: str
) -> None:
    answer = call("grep_codebase", {"pattern": "x", "filePattern": file_pattern})
    assert answer.is_error
    assert answer.content["details"] == details


def test_an_absolute_file_pattern_inside_the_root_is_answered_with_the_relative_one(call: CallTool, tree: Path) -> None:
    answer = call("grep_codebase", {"pattern": "x", "filePattern": f"{tree}/src/**/*.ts"})
    assert answer.is_error
    assert answer.content["help"] == "Paths are relative to the project's root: use `src/**/*.ts`."


@pytest.mark.parametrize("file_pattern", [".env", "**/.env*", "node_modules/**", ".git/*", "*.{pem,key}"])
def test_a_search_of_sensitive_files_finds_nothing_and_says_why(call: CallTool, file_pattern: str) -> None:
    answer = call("grep_codebase", {"pattern": "SECRET", "filePattern": file_pattern})
    assert files(answer) == []
    assert answer.content["details"] == "Access to sensitive paths denied"


def test_a_file_pattern_that_fits_no_file_is_pointed_out(call: CallTool) -> None:
    answer = call("grep_codebase", {"pattern": "x", "filePattern": "*.rb"})
    assert answer.content["filesSearched"] == 0
    assert answer.content["help"] == "No searched file matches filePattern '*.rb'."
    below = call("grep_codebase", {"pattern": "x", "filePattern": "auth/*.ts"})
    assert below.content["help"].endswith("Try '**/' before it.")


# both


@pytest.mark.parametrize(
    ("name", "arguments", "at_fault"),
    [
        ("read_file", {}, "path"),
        ("read_file", {"path": ""}, "path"),
        ("read_file", {"path": 1}, "path"),
        ("read_file", {"path": "x", "includeDeps": "yes"}, "includeDeps"),
        ("read_file", {"path": "x", "maxDepth": 2}, "maxDepth"),
        ("read_file", {"path": "x", "maxDepth": -1}, "maxDepth"),
        ("grep_codebase", {}, "pattern"),
        ("grep_codebase", {"pattern": ""}, "pattern"),
        ("grep_codebase", {"pattern": "x" * 201}, "pattern"),
        ("grep_codebase", {"pattern": "x", "limit": 0}, "limit"),
        ("grep_codebase", {"pattern": "x", "limit": 101}, "limit"),
        ("grep_codebase", {"pattern": "x", "limit": 1.5}, "limit"),
        ("grep_codebase", {"pattern": "x", "limit": True}, "limit"),
        ("grep_codebase", {"pattern": "x", "filePattern": 1}, "filePattern"),
        ("grep_codebase", {"pattern": "x", "caseSensitive": 1}, "caseSensitive"),
    ],
)
def test_invalid_parameters_are_named(call: CallTool, name: str, arguments: dict[str, Any], at_fault: str) -> None:
    answer = call(name, arguments)
    assert answer.is_error
    assert answer.content["error"] == "Invalid parameters"
    assert [each["path"] for each in answer.content["details"]] == [at_fault]
    assert not jsonschema_rs.is_valid(TOOLS[name].input_schema, arguments)


@pytest.mark.parametrize(("name", "arguments"), [("read_file", {"path": "x"}), ("grep_codebase", {"pattern": "x"})])
def test_without_a_root_the_answer_says_how_to_name_one(
    parser: ImportParser, name: str, arguments: dict[str, Any]
) -> None:
    answer = calling(Archive({}, access_log=Noted(), imports=parser))(name, arguments)
    assert answer.is_error
    assert answer.content["error"] == "No roots configured"
    assert "pointsman.yaml" in answer.content["help"]
    assert "roots:" in answer.content["help"]


@pytest.mark.parametrize(("name", "arguments"), [("read_file", {"path": "x"}), ("grep_codebase", {"pattern": "x"})])
def test_a_root_that_is_gone_is_named_without_its_place(
    parser: ImportParser, tmp_path: Path, name: str, arguments: dict[str, Any]
) -> None:
    answer = calling(Archive({"app": tmp_path / "gone"}, access_log=Noted(), imports=parser))(name, arguments)
    assert answer.is_error
    assert "`app`" in answer.content["details"]
    assert str(tmp_path) not in str(answer.content)


def test_with_several_roots_paths_carry_their_names(tree: Path, tmp_path: Path, parser: ImportParser) -> None:
    write(tmp_path, {"main.py": "import other  # jwt.sign\n", "other.py": ""})
    noted = Noted()
    call = calling(Archive({"app": tree, "tools": tmp_path}, access_log=noted, imports=parser))
    answer = call("read_file", {"path": "tools/main.py", "includeDeps": True})
    assert answer.content["file"]["path"] == "tools/main.py"
    assert [each["path"] for each in answer.content["dependencies"]] == ["tools/other.py"]
    assert noted.files == [("tools", "main.py")]
    assert files(call("grep_codebase", {"pattern": "jwt.sign"})) == [
        "app/src/server/auth/AuthService.ts",
        "tools/main.py",
    ]
    unknown = call("read_file", {"path": "main.py"})
    assert unknown.content["error"] == "File not found"
    assert unknown.content["help"].endswith("app, tools.")


def test_no_answer_names_a_place_of_the_machine(call: CallTool, tree: Path) -> None:
    asked = ("src", "nothing", ".env", "../x", "picture.png", "src/index.ts", "large.txt", "file.ts")
    answers = [call("read_file", {"path": path, "includeDeps": True}) for path in asked]
    answers += [call("grep_codebase", {"pattern": pattern}) for pattern in ("(", "main", "nothing at all")]
    assert str(tree.parent) not in str(answers)
