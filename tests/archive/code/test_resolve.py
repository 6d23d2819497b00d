"""Imports resolve to files, in small projects of every language, through the real parser."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from pointsman.archive.code.imports.parser import ImportParser
from pointsman.archive.code.imports.resolve import MOST, resolve
from pointsman.archive.code.imports.syntax import grammar_of
from tests.archive.code.trees import named, write


def dependencies(parser: ImportParser, root: Path, importer: str) -> list[str]:
    grammar = grammar_of(importer)
    assert grammar is not None
    parsed = parser.parse(grammar, (root / importer).read_bytes())
    return list(resolve(root, importer, grammar, parsed))


def project(root: Path, importer: str, source: str, *others: str, **texts: str) -> Path:
    return write(root, {**named(*others), importer: source, **texts})


def test_relative_scripts_are_found_without_their_extension(parser: ImportParser, tmp_path: Path) -> None:
    source = "".join(
        f'import "{target}"\n'
        for target in (
            "./a",
            "../b",
            "./folder",
            "./c.js",
            "./d.json",
            "./e.vue?raw",
            ".",
            "./none",
            "react",
            "./f.mjs",
        )
    )
    others = (
        "src/a.tsx",
        "b.ts",
        "src/folder/index.ts",
        "src/c.ts",
        "src/d.json",
        "src/e.vue",
        "src/index.ts",
        "src/f.mts",
    )
    project(tmp_path, "src/main.ts", source, *others, "node_modules/react/index.js")
    assert dependencies(parser, tmp_path, "src/main.ts") == list(others)


TSCONFIG = """{
  // comments, "quotes" and a last comma are all right
  "extends": "./base",
  "compilerOptions": {
    "paths": {"@/*": ["./src/*"], "@/special/*": ["./else/*", "./other/*"], "exact": ["./src/exact.ts"], "bad": 1,},
  },  /* "paths": {"@/*": ["./wrong/*"]} */
}"""


def test_aliases_of_tsconfig_are_followed(parser: ImportParser, tmp_path: Path) -> None:
    source = 'import "@/a"; import "@/special/b"; import "exact"; import "lib/c"; import "exact/no"\n'
    others = ("src/a.ts", "other/b.ts", "src/exact.ts")
    project(tmp_path, "src/deep/main.ts", source, *others, **{"tsconfig.json": TSCONFIG, "base.json": "{}"})
    assert dependencies(parser, tmp_path, "src/deep/main.ts") == list(others)


def test_base_url_and_paths_are_inherited(parser: ImportParser, tmp_path: Path) -> None:
    shared = '{"compilerOptions": {"baseUrl": "./src", "paths": {"~/*": ["short/*"]}}}'
    files = {"config/shared.json": shared, "tsconfig.json": '{"extends": ["./config/shared.json", "@pkg/x"]}'}
    others = ("config/src/c.ts", "config/src/short/d.ts")
    project(tmp_path, "main.ts", 'import "c"; import "~/d"\n', *others, **files)
    assert dependencies(parser, tmp_path, "main.ts") == list(others)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"extends": "./tsconfig.json"}', '{"compilerOptions": 1}', "[" * 9999]
)
def test_an_odd_tsconfig_harms_nothing(parser: ImportParser, tmp_path: Path, text: str) -> None:
    project(tmp_path, "main.ts", 'import "./a"; import "b"\n', "a.ts", **{"tsconfig.json": text})
    assert dependencies(parser, tmp_path, "main.ts") == ["a.ts"]


PYTHON = ("src/app/__init__.py", "src/app/core.py", "src/app/sub/__init__.py", "src/app/sub/x.py", "src/app/sub/y.py")


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import app.core", ["src/app/core.py"]),
        ("import app", ["src/app/__init__.py"]),
        ("from app import core", ["src/app/core.py"]),
        ("from app import core, VERSION", ["src/app/__init__.py", "src/app/core.py"]),
        ("from app.core import f", ["src/app/core.py"]),
        ("from . import y", ["src/app/sub/y.py"]),
        ("from . import NAME", ["src/app/sub/__init__.py"]),
        ("from .y import f", ["src/app/sub/y.py"]),
        ("from ..core import f", ["src/app/core.py"]),
        ("from .. import core", ["src/app/core.py"]),
        ("from .... import no", []),
        ("from ....... import no", []),
        ("import y", []),
        ("import os, json", []),
        ("def f():\n    from app.sub import y", ["src/app/sub/y.py"]),
    ],
)
def test_python_modules_are_found_in_a_src_layout(
    parser: ImportParser, tmp_path: Path, source: str, found: list[str]
) -> None:
    project(tmp_path, "src/app/sub/x.py", source, *(path for path in PYTHON if path != "src/app/sub/x.py"))
    assert dependencies(parser, tmp_path, "src/app/sub/x.py") == found


def test_python_tests_and_scripts_find_the_package_and_their_neighbours(parser: ImportParser, tmp_path: Path) -> None:
    project(tmp_path, "tests/test_x.py", "import app.core\nimport helper\n", *PYTHON, "tests/helper.py")
    assert dependencies(parser, tmp_path, "tests/test_x.py") == ["src/app/core.py", "tests/helper.py"]


def test_a_package_that_is_linked_into_place_is_told_where_it_lies(parser: ImportParser, tmp_path: Path) -> None:
    project(tmp_path, "main.py", "from pkg.part import x", "part/__init__.py", "src/pkg/__init__.py")
    (tmp_path / "src/pkg/part").symlink_to("../../part")
    assert dependencies(parser, tmp_path, "main.py") == ["part/__init__.py"]


def test_a_go_package_is_all_files_of_its_folder(parser: ImportParser, tmp_path: Path) -> None:
    imported = '"fmt"\n"example.com/app/auth"\nc "example.com/app/credentials"\n"example.com/apple"\n'
    source = f"package main\nimport (\n{imported})\n"
    others = ("svc/auth/a.go", "svc/auth/b.go", "svc/credentials/c.go")
    text = {"svc/go.mod": "// the module\nmodule example.com/app\n\ngo 1.22\n"}
    project(tmp_path, "svc/cmd/main.go", source, *others, "svc/auth/a_test.go", "svc/auth/readme.md", **text)
    assert dependencies(parser, tmp_path, "svc/cmd/main.go") == list(others)


RUST = ("src/a/mod.rs", "src/a/b.rs", "src/c.rs", "src/c/d.rs", "src/odd/name.rs", "src/inline/e.rs")


def test_rust_modules_and_paths_are_followed(parser: ImportParser, tmp_path: Path) -> None:
    source = """mod a; mod c; #[path = "odd/name.rs"] mod o; mod inline { mod e; }
    use crate::a::b::Thing; use c::d::{x, y}; use std::fs; use mate::z::Z; use serde::Serialize;"""
    text = {
        "Cargo.toml": '[package]\nname = "my-app"\n[dependencies]\nserde = "1"\nmate = { path = "../app/mate" }\n',
        "mate/Cargo.toml": '[package]\nname = "mate"\n',
        "src/c/d.rs": "use super::helper; use super::super::a::Other; use crate::Top; use self::inner::X;",
        "tests/t.rs": "use my_app::a::b;",
    }
    text = {f"app/{path}": content for path, content in text.items()}
    others = [f"app/{path}" for path in (*RUST, "mate/src/lib.rs", "mate/src/z.rs") if path != "src/c/d.rs"]
    project(tmp_path, "app/src/main.rs", source, *others, **text)
    inside = [
        "src/a/mod.rs",
        "src/c.rs",
        "src/odd/name.rs",
        "src/inline/e.rs",
        "src/a/b.rs",
        "src/c/d.rs",
        "mate/src/z.rs",
    ]
    assert dependencies(parser, tmp_path, "app/src/main.rs") == [f"app/{path}" for path in inside]
    assert dependencies(parser, tmp_path, "app/src/c/d.rs") == [
        f"app/{path}" for path in ("src/c.rs", "src/a/mod.rs", "src/main.rs")
    ]
    assert dependencies(parser, tmp_path, "app/tests/t.rs") == ["app/src/a/b.rs"]


def test_java_classes_members_and_packages_are_found(parser: ImportParser, tmp_path: Path) -> None:
    source = """package com.acme.app;
    import com.acme.auth.Token; import static com.acme.util.Text.cut; import com.acme.model.*;
    import com.acme.auth.Outer.Inner; import static com.acme.util.More.*; import java.util.List; import com.lib.Shared;
    class Main {}"""
    home = "server/src/main/java/com/acme"
    others = [
        f"{home}/{path}.java" for path in ("auth/Token", "util/Text", "model/A", "model/B", "auth/Outer", "util/More")
    ]
    others.append("lib/src/main/java/com/lib/Shared.java")
    project(tmp_path, f"{home}/app/Main.java", source, *others)
    assert dependencies(parser, tmp_path, f"{home}/app/Main.java") == others
    test = "server/src/test/java/com/acme/auth/TokenTest.java"
    project(tmp_path, test, "package com.acme.auth; import com.acme.util.Text; class TokenTest {}")
    assert dependencies(parser, tmp_path, test) == [f"{home}/util/Text.java"]


@pytest.mark.parametrize(
    ("files", "links"),
    [
        ({"main.ts": 'import "./.env"; import "./keys/id_rsa"; import "./server.pem"; import "../outside"'}, {}),
        ({"main.ts": 'import "./out"; import "./outside/o"'}, {"out.ts": "../outside.ts", "outside": "../"}),
        ({"main.py": "from ...... import outside\nimport outside\n"}, {"outside.py": "../outside.py"}),
    ],
)
def test_imports_lead_neither_out_of_the_root_nor_to_secrets(
    parser: ImportParser, tmp_path: Path, files: Mapping[str, str], links: Mapping[str, str]
) -> None:
    write(tmp_path, named("outside.ts", "outside.py", "o.ts"))
    root = write(tmp_path / "root", {**named(".env", "keys/id_rsa", "server.pem"), **files})
    for link, target in links.items():
        (root / link).symlink_to(target)
    assert dependencies(parser, root, next(iter(files))) == []


def test_a_file_does_not_depend_on_itself_and_the_number_is_bounded(parser: ImportParser, tmp_path: Path) -> None:
    many = [f"m{number}.py" for number in range(MOST + 20)]
    source = "import main\nfrom . import main\n" + "".join(f"import {name[:-3]}\n" for name in many)
    project(tmp_path, "main.py", source, *many)
    assert dependencies(parser, tmp_path, "main.py") == many[:MOST]
