"""What the six grammars find, and what they ignore: comments, strings and names that look like imports."""

from __future__ import annotations

import pytest

from pointsman.archive.code.imports.parser import ImportParser
from pointsman.archive.code.imports.syntax import Import, grammar_of

SCRIPT = """
import a from "./a"; import "./b"
import { c1, c2 as c3 } from './c'
import * as d from "./d"
export { e } from "./e"
export * from './f'
const g = require("./g")
const h = await import("./h")
import(`./i`)
import(`./${not_this}`)
// import no1 from "./no1"
/* const no2 = require("./no2") */
const no3 = 'import x from "./no3"'
const no4 = `import x from "./no4"`
required("./no5"); obj.require_("./no6"); require(name)
function lazy() { return require("./j") }
"""
SCRIPT_FINDS = {
    **dict.fromkeys(("./a", "./b", "./c", "./d"), "import"),
    **dict.fromkeys(("./e", "./f"), "export"),
    **dict.fromkeys(("./g", "./j"), "require"),
    **dict.fromkeys(("./h", "./i"), "dynamic"),
}


def targets(parser: ImportParser, grammar: str, source: str) -> list[str]:
    return [each.target for each in parser.parse(grammar, source.encode()).imports]


@pytest.mark.parametrize("grammar", ["javascript", "typescript", "tsx"])
def test_all_ways_to_import_a_script_are_found(parser: ImportParser, grammar: str) -> None:
    parsed = parser.parse(grammar, SCRIPT.encode())
    assert {each.target: each.kind for each in parsed.imports} == SCRIPT_FINDS
    assert [each.target for each in parsed.imports] == sorted(SCRIPT_FINDS, key=SCRIPT.index)
    assert parsed.error_line == 0


def test_typescript_adds_types_and_import_equals(parser: ImportParser) -> None:
    source = 'import type { A } from "./a"\nimport b = require("./b")\nexport type { C } from "./c"\n'
    assert targets(parser, "typescript", source) == ["./a", "./b", "./c"]


def test_jsx_is_understood_where_it_may_stand(parser: ImportParser) -> None:
    source = 'import { A } from "./a"\nexport const B = () => <A href="import x from \'./no\'">{require("./b")}</A>\n'
    for grammar in ("tsx", "javascript"):
        assert targets(parser, grammar, source) == ["./a", "./b"]


def test_python_imports_are_found_with_what_they_take(parser: ImportParser) -> None:
    source = """
import a.b as c, d
from . import x, y as z
from ..k.l import (m,
    n)
from q import *
from __future__ import annotations
def lazy():
    import late
    importlib.import_module("named.late")
if TYPE_CHECKING:
    from t import T
text = "import no1"
# import no2
\"\"\"
import no3
\"\"\"
from .\\
    broken import o
"""
    assert parser.parse("python", source.encode()).imports == (
        Import("import", "a.b"),
        Import("import", "d"),
        Import("import", ".", ("x", "y")),
        Import("import", "..k.l", ("m", "n")),
        Import("import", "q"),
        Import("import", "late"),
        Import("dynamic", "named.late"),
        Import("import", "t", ("T",)),
        Import("import", ".broken", ("o",)),
    )


def test_go_imports_are_found_grouped_and_aliased(parser: ImportParser) -> None:
    source = 'package p\nimport "a"\nimport (\n\tx "b/c"\n\t. "d"\n\t_ "e"\n\t// "no1"\n)\nvar s = "no2"\n'
    assert targets(parser, "go", source) == ["a", "b/c", "d", "e"]


def test_rust_modules_and_use_trees_are_found(parser: ImportParser) -> None:
    source = """
mod a;
pub mod b { mod inner; use super::x; }
#[cfg(unix)]
#[path = "other/o.rs"]
mod o;
use crate::m::{n, p::Q, self, r as s, t::*};
use foo;
extern crate bar as baz;
// use no1;
const S: &str = "use no2;";
"""
    assert parser.parse("rust", source.encode()).imports == (
        Import("module", "a"),
        Import("module", "inner", ("b",)),
        Import("import", "super::x", ("b",)),
        Import("module", "o", (), "other/o.rs"),
        Import("import", "crate::m::n"),
        Import("import", "crate::m::p::Q"),
        Import("import", "crate::m"),
        Import("import", "crate::m::r"),
        Import("import", "crate::m::t"),
        Import("import", "foo"),
        Import("import", "bar"),
    )


def test_java_imports_are_found_static_and_wildcard(parser: ImportParser) -> None:
    source = (
        "package com.acme.app;\nimport com.x.Y;\nimport static com.x.Z.max;\nimport com.w.*;\n"
        'import static com.q.R.*;\n// import no.No;\nclass A { String s = "import no.No;"; }\n'
    )
    parsed = parser.parse("java", source.encode())
    assert parsed.package == "com.acme.app"
    assert parsed.imports == (
        Import("import", "com.x.Y"),
        Import("import", "com.x.Z.max", ("static",)),
        Import("import", "com.w.*"),
        Import("import", "com.q.R.*", ("static",)),
    )


@pytest.mark.parametrize(
    ("grammar", "source", "line"),
    [
        ("typescript", 'import a from "./a"\nfunction (((\n', 2),
        ("python", "import a\n\ndef broken(:\n", 3),
        ("go", 'package p\nimport "a"\nfunc {{{\n', 3),
        ("rust", "use a;\nfn {{{\n", 2),
        ("java", "import a.B;\nclass {{{\n", 2),
    ],
)
def test_a_broken_file_still_yields_its_imports(parser: ImportParser, grammar: str, source: str, line: int) -> None:
    parsed = parser.parse(grammar, source.encode())
    assert len(parsed.imports) == 1
    assert parsed.error_line == line


@pytest.mark.parametrize("grammar", ["javascript", "typescript", "tsx", "python", "go", "rust", "java"])
@pytest.mark.parametrize("source", [b"", b"\xff\xfe\x00", b"(" * 3_000, b"{[" * 1_500, b"'" * 999, b"\x00" * 100])
def test_odd_sources_get_an_answer(parser: ImportParser, grammar: str, source: bytes) -> None:
    assert parser.parse(grammar, source).imports == ()


def test_a_great_many_imports_are_bounded(parser: ImportParser) -> None:
    source = "".join(f"import a{number}\n" for number in range(600))
    assert len(parser.parse("python", source.encode()).imports) == 500


@pytest.mark.parametrize(
    ("path", "grammar"), [("a/B.TSX", "tsx"), ("x.pyi", "python"), ("x.md", None), ("Makefile", None)]
)
def test_the_ending_chooses_the_grammar(path: str, grammar: str | None) -> None:
    assert grammar_of(path) == grammar
