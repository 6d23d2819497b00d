"""Finds imports with tree-sitter. Runs only in the parser process: a malformed file can stall or crash it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import islice

from tree_sitter import Language, Node, Parser, Query, QueryCursor

from pointsman.archive.code.imports.syntax import Import, Parsed

MAX_IMPORTS = 500

_SCRIPT = """
(import_statement source: (string) @import)
(export_statement source: (string) @export)
(call_expression function: (identifier) @_name arguments: (arguments . [(string) (template_string)] @require)
  (#eq? @_name "require"))
(call_expression function: (import) arguments: (arguments . [(string) (template_string)] @dynamic))
"""
_QUERIES = {
    "javascript": _SCRIPT,
    "typescript": _SCRIPT + "(import_require_clause source: (string) @require)",
    "python": """
(import_statement) @import
(import_from_statement) @from
(call function: [(attribute attribute: (identifier) @_name) (identifier) @_name]
  arguments: (argument_list . (string (string_content) @dynamic)) (#any-of? @_name "import_module" "__import__"))
""",
    "go": "(import_spec path: [(interpreted_string_literal) (raw_string_literal)] @import)",
    "rust": """
(use_declaration argument: (_) @use)
(mod_item name: (identifier) @mod !body)
(extern_crate_declaration name: (identifier) @extern)
""",
    "java": "(import_declaration) @import (package_declaration (_) @package)",
}
_QUERIES["tsx"] = _QUERIES["typescript"]


def parse(grammar: str, source: bytes) -> Parsed:
    parser, query = _parser_and_query(grammar)
    root = parser.parse(source).root_node
    captured = QueryCursor(query).captures(root)
    found = sorted(
        ((node, name) for name, nodes in captured.items() if not name.startswith("_") for node in nodes),
        key=lambda each: each[0].start_byte,
    )
    read = _READERS[grammar]
    imports = tuple(
        islice((each for node, name in found if name != "package" for each in read(node, name)), MAX_IMPORTS)
    )
    package = next((_text(node) for node, name in found if name == "package"), "")
    return Parsed(imports, _error_line(root), package)


@lru_cache
def _parser_and_query(grammar: str) -> tuple[Parser, Query]:
    language = Language(_load(grammar))
    return Parser(language), Query(language, _QUERIES[grammar])


def _load(grammar: str) -> object:
    """Load one grammar at a time: few projects use all six languages."""
    if grammar in ("typescript", "tsx"):
        import tree_sitter_typescript

        return (
            tree_sitter_typescript.language_tsx() if grammar == "tsx" else tree_sitter_typescript.language_typescript()
        )
    import importlib

    return importlib.import_module(f"tree_sitter_{grammar}").language()


def _script(node: Node, kind: str) -> Iterator[Import]:
    if any(child.type == "template_substitution" for child in node.children):
        return  # import(`./${name}`) names no fixed file
    target = _text(node)[1:-1]
    if target and "\\" not in target:
        yield Import(kind, target)


def _python(node: Node, kind: str) -> Iterator[Import]:
    if kind == "dynamic":
        yield Import("dynamic", _text(node))
        return
    taken = [_unaliased(child) for child in node.children_by_field_name("name")]
    if kind == "import":
        yield from (Import("import", name) for name in taken)
    elif (module := node.child_by_field_name("module_name")) is not None:
        yield Import("import", _joined(module), tuple(taken))


def _unaliased(node: Node) -> str:
    if node.type == "aliased_import":
        node = node.child_by_field_name("name") or node
    return _joined(node)


def _go(node: Node, _: str) -> Iterator[Import]:
    yield Import("import", _text(node)[1:-1])


def _java(node: Node, _: str) -> Iterator[Import]:
    kinds = {child.type for child in node.children}
    for child in node.named_children:
        if child.type in ("scoped_identifier", "identifier"):
            wildcard = ".*" if "asterisk" in kinds else ""
            yield Import("import", _joined(child) + wildcard, ("static",) if "static" in kinds else ())


def _rust(node: Node, kind: str) -> Iterator[Import]:
    inside = _enclosing_modules(node)
    if kind == "use":
        yield from (Import("import", path, inside) for path in _use_paths(node))
    elif kind == "extern":
        yield Import("import", _text(node))
    elif node.parent is not None:
        yield Import("module", _text(node), inside, _path_attribute(node.parent))


def _use_paths(argument: Node) -> Iterator[str]:
    """The paths of a use tree: `a::{b, c::D}` is `a::b` and `a::c::D`."""
    waiting = [(argument, "")]
    while waiting:
        node, prefix = waiting.pop()
        if node.type == "use_as_clause":
            waiting += [(path, prefix) for path in node.children_by_field_name("path")]
        elif node.type == "use_wildcard":
            waiting += [(path, prefix) for path in node.named_children[:1]]
        elif node.type == "scoped_use_list":
            path = node.child_by_field_name("path")
            deeper = f"{prefix}{_joined(path)}::" if path else prefix
            waiting += [(each, deeper) for each in node.children_by_field_name("list")]
        elif node.type == "use_list":
            waiting += [(child, prefix) for child in reversed(node.named_children)]
        elif node.type == "self" and prefix:
            yield prefix.removesuffix("::")
        elif node.type in ("identifier", "scoped_identifier", "crate", "self", "super"):
            yield prefix + _joined(node)


def _enclosing_modules(node: Node) -> tuple[str, ...]:
    names: list[str] = []
    parent = node.parent
    while parent is not None:
        if parent.type == "mod_item" and parent.child_by_field_name("body") is not None:
            names += [_text(name) for name in parent.children_by_field_name("name")]
        parent = parent.parent
    return tuple(reversed(names))


def _path_attribute(item: Node) -> str:
    before = item.prev_named_sibling
    while before is not None and before.type == "attribute_item":
        for attribute in before.named_children:
            value = attribute.child_by_field_name("value")
            if value is not None and attribute.named_children[0].text == b"path":
                return _text(value).strip('"')
        before = before.prev_named_sibling
    return ""


def _error_line(root: Node) -> int:
    """The line of the first error, found by descending into erroneous nodes only."""
    if not root.has_error:
        return 0
    node = root
    while True:
        wrong = next((child for child in node.children if child.has_error or child.is_error or child.is_missing), None)
        if wrong is None:
            return node.start_point.row + 1
        node = wrong


def _text(node: Node) -> str:
    return (node.text or b"").decode(errors="replace")


def _joined(node: Node) -> str:
    """The text without blanks and line ends, which may separate the parts of a name."""
    return "".join(_text(node).replace("\\", " ").split())


_READERS: dict[str, Callable[[Node, str], Iterator[Import]]] = {
    **dict.fromkeys(("javascript", "typescript", "tsx"), _script),
    "python": _python,
    "go": _go,
    "rust": _rust,
    "java": _java,
}
