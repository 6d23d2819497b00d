"""Language, module and role of a file, by its path."""

from __future__ import annotations

import pytest

from pointsman.archive.code.classification import language, module, role


@pytest.mark.parametrize(
    ("path", "described"),
    [
        ("src/server/auth/AuthService.ts", ("typescript", "auth", "core")),
        ("src/server/auth/handlers/login.tsx", ("typescript", "auth", "core")),
        ("src/index.js", ("javascript", "src", "core")),
        ("main.py", ("python", "app", "core")),
        ("tests/auth/test_login.py", ("python", "auth", "test")),
        ("src/auth/login.spec.ts", ("typescript", "auth", "test")),
        ("pkg/auth/login_test.go", ("go", "auth", "test")),
        ("src/main/java/com/acme/auth/Token.java", ("java", "auth", "core")),
        ("src/test/java/com/acme/auth/TokenTest.java", ("java", "auth", "test")),
        ("crates/parser/src/lib.rs", ("rust", "parser", "core")),
        ("README.md", ("markdown", "app", "docs")),
        ("docs/api/auth.html", ("html", "docs", "docs")),
        ("package.json", ("json", "app", "config")),
        ("vite.config.ts", ("typescript", "app", "config")),
        (".gitignore", ("text", "app", "config")),
        (".github/workflows/ci.yml", ("yaml", ".github", "config")),
        ("Dockerfile", ("dockerfile", "app", "config")),
        ("src/contest.py", ("python", "src", "core")),
    ],
)
def test_language_module_and_role_follow_from_the_path(path: str, described: tuple[str, str, str]) -> None:
    assert (language(path), module(path, "app"), role(path)) == described
