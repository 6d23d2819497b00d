"""YAML's syntax errors in plain words: where the mistake is, and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct
from ruamel.yaml.composer import MaxDepthExceededError
from ruamel.yaml.error import MarkedYAMLError, StringMark

from pointsman.config.errors import ConfigProblem
from pointsman.config.secrets import holds_secret

TYPOGRAPHIC_QUOTES = tuple("\u201c\u201d\u201e\u201f\u2018\u2019\u201a\u201b")

NO_COMMENT = "`{}` does not start a comment in YAML; use `#`"
_SHOWN = 60  # characters of a corrected text
_NO_SPACE = re.compile(r"\s*(?:- +)?[\"']?([A-Za-z_][\w.-]*)[\"']?:(?![\s/]|$)")
_LONE_WORD = re.compile(r"\s*([A-Za-z_][\w.-]*)\s*")
_COMMENT_AS_VALUE = re.compile(r"[\[{,:][ \t]*+(#)[^\s#]")
_KEY = re.compile(r"\s*[\"']?[\w.-]*[\"']?")
_QUOTED_OR_COMMENT = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'|(?<!\S)#[^\n]*")
_SLASHES = re.compile(r"(?<![^\s,{\[])(?://|/\*)")
_TOML_TABLE = re.compile(r"^\[{1,2}[\w.\"-]+\]{1,2}[ \t]*$", re.MULTILINE)


def without_quotes(text: str) -> str:
    """The text in straight quotes; not repeated if it may be a secret."""
    plain = text.strip("".join(TYPOGRAPHIC_QUOTES))
    if len(plain) > _SHOWN or holds_secret(plain) or '"' in plain or "\\" in plain:
        return 'straight ones (")'
    return f'"{plain}"'


def explain_syntax(error: MarkedYAMLError, text: str, file_name: str, max_depth: int) -> ConfigProblem:
    if isinstance(error, MaxDepthExceededError):
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
        return ConfigProblem(file_name, line, column, "", f"nested deeper than {max_depth} levels")
    mistake = _Mistake.of(error, text)
    for rule in _RULES:
        found = rule(mistake)
        if found is not None:
            line, column, reason = found
            return ConfigProblem(file_name, line + 1, column + 1, "", reason)
    raise AssertionError("the last rule always answers")


_Answer = tuple[int, int, str]  # line and column from 0, and the reason


class _Mistake(Struct, frozen=True):
    """What ruamel.yaml reports: `line` and `column` (from 0) of the problem, and where the construct began."""

    problem: str
    context: str
    lines: list[str]
    text: str
    index: int
    line: int
    column: int
    start: tuple[int, int] | None

    @classmethod
    def of(cls, error: MarkedYAMLError, text: str) -> _Mistake:
        mark: StringMark | None = error.problem_mark or error.context_mark
        begin: StringMark | None = error.context_mark
        return cls(
            problem=str(error.problem or error.context or "this is not YAML"),
            context=str(error.context or ""),
            lines=text.split("\n"),
            text=text,
            index=mark.index if mark is not None else 0,
            line=mark.line if mark is not None else 0,
            column=mark.column if mark is not None else 0,
            start=(begin.line, begin.column) if begin is not None else None,
        )

    def here(self, reason: str) -> _Answer:
        return self.line, self.column, reason

    def at_start(self, reason: str) -> _Answer:
        line, column = self.start or (self.line, self.column)
        return line, column, reason

    def line_text(self, line: int) -> str:
        return self.lines[line].rstrip("\r") if 0 <= line < len(self.lines) else ""

    def line_above(self, line: int) -> int | None:
        """The nearest line above that has content."""
        for number in range(min(line, len(self.lines)) - 1, -1, -1):
            content = self.lines[number].strip()
            if content and not content.startswith("#"):
                return number
        return None


def _other_format(mistake: _Mistake) -> _Answer | None:
    if "another document" in mistake.problem:
        return mistake.here("a second document starts here (`---`); only one is allowed")
    for number in (mistake.line, mistake.line_above(mistake.line)):
        if number is not None and mistake.line_text(number).lstrip().startswith("```"):
            return number, 0, "this line encloses a code block of a web page or chat; delete it"
    table = _TOML_TABLE.search(mistake.text)
    if table is not None and " = " in mistake.text:
        step = "save it as a .toml file and run `pointsman import FILE`"
        return mistake.text.count("\n", 0, table.start()), 0, f"this is TOML, not YAML; {step}"
    return None


def _character(mistake: _Mistake) -> _Answer | None:
    if "'\\t'" in mistake.problem:
        if mistake.line_text(mistake.line)[: mistake.column].strip():
            return mistake.here("a tab is not allowed here; use a space")
        return mistake.here("a tab cannot indent YAML; use spaces")
    if mistake.text[max(mistake.index - 1, 0) : mistake.index + 1] == "${":
        return mistake.here('quote a value with ${...} inside braces or brackets: "${NAME}"')
    line = mistake.line_text(mistake.line)
    column = next((at for at, character in enumerate(line) if character in TYPOGRAPHIC_QUOTES), None)
    if column is not None:
        return mistake.line, column, 'typographic quotes do not quote in YAML; write straight ones (")'
    if bad_start := re.fullmatch(r"found character (.+) that cannot start any token", mistake.problem):
        return mistake.here(f"a value cannot start with {bad_start[1]}; quote it")
    return None


def _quote(mistake: _Mistake) -> _Answer | None:
    if "quoted scalar" in mistake.context and "end of stream" in mistake.problem and mistake.start:
        line, column = mistake.start
        quote = mistake.line_text(line)[column : column + 1]
        return mistake.at_start(f"the quote that opens here is never closed; add `{quote}` at the end of the value")
    if mistake.context == "while scanning a double-quoted scalar" and "escape" in mistake.problem:
        backslash = mistake.text.rfind("\\", 0, mistake.index + 1)
        column = mistake.column - (mistake.index - backslash)
        reason = "in double quotes `\\` starts an escape; write `\\\\`, or use single quotes"
        return mistake.line, max(column, 0), reason
    return None


def _special_start(mistake: _Mistake) -> _Answer | None:
    """A text that starts with a character that has a meaning in YAML."""
    if mistake.context == "while scanning an alias":
        return mistake.at_start('a value that starts with `*` is an alias in YAML; quote it, such as "*"')
    if undefined := re.fullmatch(r"found undefined alias '(.*)'", mistake.problem):
        return mistake.here(f"`*{undefined[1]}` is an alias of nothing; if it is meant as text, quote it")
    if mistake.context.endswith((" anchor", " tag", " directive", " block scalar")):
        line, column = mistake.start or (mistake.line, mistake.column)
        character = mistake.line_text(line)[column : column + 1]
        return line, column, f"a value that starts with `{character}` has a special meaning in YAML; quote it"
    return None


def _slashes(mistake: _Mistake) -> _Answer | None:
    """A comment as in JSON with comments, above the place where YAML stumbles."""
    above = mistake.line_above(mistake.line)
    first = mistake.start[0] if mistake.start else mistake.line
    for number in range(mistake.line, min(first, mistake.line if above is None else above) - 1, -1):
        plain = _QUOTED_OR_COMMENT.sub(lambda found: " " * len(found[0]), mistake.line_text(number))
        found = _SLASHES.search(plain)
        if found is not None:
            return number, found.start(), NO_COMMENT.format(found[0])
    return None


def _colon(mistake: _Mistake) -> _Answer | None:
    """A key without the space or the colon after it: YAML notices it only at the next key."""
    unexpected = mistake.problem == "mapping values are not allowed here"
    if not unexpected and mistake.problem != "could not find expected ':'":
        return None
    above = mistake.line_above(mistake.line)
    suspects = [mistake.start[0] if mistake.start else None, mistake.line if unexpected else None, above]
    for number in suspects:
        found = _NO_SPACE.match(mistake.line_text(number)) if number is not None else None
        if number is not None and found is not None:
            return number, found.start(1), f"a space is missing after the colon; write `{found[1]}: ...`"
    if not unexpected:
        return _lone_line(mistake)
    word = _LONE_WORD.fullmatch(mistake.line_text(above)) if above is not None else None
    if above is not None and word is not None:
        return above, word.start(1), f"a colon is missing; write `{word[1]}:`"
    if above is not None and _indent(mistake.line_text(above)) < _indent(mistake.line_text(mistake.line)):
        reason = f"this line is indented deeper than line {above + 1}, which has a value already; indent both alike"
        return mistake.line, _indent(mistake.line_text(mistake.line)), reason
    return mistake.here("unexpected `:`; quote a value that contains `: `, or check the indentation")


def _lone_line(mistake: _Mistake) -> _Answer:
    line, column = mistake.start or (mistake.line, mistake.column)
    if mistake.line_text(line).startswith("{"):
        above = mistake.line_above(line)
        if above is not None and mistake.line_text(above).rstrip().endswith(":"):
            return line, column, f"put this `{{` behind the colon of line {above + 1}"
        return line, column, "this block of JSON is not complete: a brace, a quote or a comma is missing in it"
    if re.match(r"\s*-\w", mistake.line_text(line)):
        return line, column, "a space is missing after the `-` of this item"
    return line, column, "this line is neither `key: value` nor an item of a list (`- value`)"


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _group(mistake: _Mistake) -> _Answer | None:
    """A line that does not continue the keys or items above it."""
    if extra := re.fullmatch(r"expected '<document start>', but found \('([}\]])',\)", mistake.problem):
        return mistake.here(f"there is one `{extra[1]}` too many; delete it")
    found = re.fullmatch(r"expected (?:<block end>|'<document start>'), but found \(?'([^']*)',?\)?", mistake.problem)
    if found is None:
        return None
    if found[1] == ",":
        return mistake.here("delete this comma; commas stand only inside braces and brackets")
    if found[1] == "<scalar>":
        return mistake.here("text follows the end of a value; a quote is missing or too many here or in the line above")
    if mistake.context == "while parsing a block collection" or found[1] in ("-", "<block sequence start>"):
        return mistake.here("items of a list (`- ...`) and keys (`key: ...`) are mixed here; write one of the two")
    if mistake.text[mistake.index : mistake.index + 1] in ("{", "["):
        return mistake.here("this block of JSON is not complete: a brace, a quote or a comma is missing in it")
    return mistake.here("the indentation fits no line above; keys that belong together start in the same column")


def _value(mistake: _Mistake) -> _Answer | None:
    """Something else in the place of a value."""
    if mistake.problem == "sequence entries are not allowed here":
        return mistake.here("an item of a list (`- ...`) starts on a line of its own")
    found = re.fullmatch(r"expected the node content, but found '(.*)'", mistake.problem)
    if found is None:
        return None
    if found[1] == "<stream end>":
        return _comment(mistake) or mistake.here(
            "the file ends within a block; a brace or a bracket is missing at its end"
        )
    if found[1] == "-":
        return mistake.here("inside braces and brackets a list is written as [first, second], without `-`")
    return mistake.here(f"unexpected `{found[1]}`; delete it, or write a value before it")


def _bracket(mistake: _Mistake) -> _Answer | None:
    found = re.fullmatch(r"expected ',' or '([}\]])', but got '(.*)'", mistake.problem)
    if found is None:
        return None
    closing, got = found[1], found[2]
    opening = {"}": "{", "]": "["}[closing]
    if got == "<stream end>":
        return _comment(mistake) or mistake.at_start(
            f"the `{opening}` that opens here is never closed; add `{closing}`"
        )
    if got in ("}", "]"):
        line = mistake.start[0] + 1 if mistake.start else mistake.line + 1
        return mistake.here(f"`{closing}` is missing before this `{got}`, for the `{opening}` in line {line}")
    if _at_later_key(mistake) and not _closes_later(mistake.text[mistake.index :], closing):
        return mistake.at_start(
            f"the `{opening}` that opens here is not closed before line {mistake.line + 1}; add `{closing}`"
        )
    return mistake.here("a comma is missing before this, or a quote before it is not closed")


def _at_later_key(mistake: _Mistake) -> bool:
    """Whether the problem is at the key of a line below the one with the bracket."""
    before = mistake.line_text(mistake.line)[: mistake.column]
    return mistake.start is not None and mistake.start[0] < mistake.line and _KEY.fullmatch(before) is not None


def _closes_later(rest: str, closing: str) -> bool:
    """Whether the first bracket that `rest` closes and does not open is this one."""
    depth = 0
    for bracket in re.findall(r"[\[\]{}]", _QUOTED_OR_COMMENT.sub("", rest)):
        depth += 1 if bracket in "[{" else -1
        if depth < 0:
            return bool(bracket == closing)
    return False


def _comment(mistake: _Mistake) -> _Answer | None:
    """A value that is read as a comment, and with it the bracket behind it."""
    found = _COMMENT_AS_VALUE.search(mistake.text)
    if found is None:
        return None
    line, column = (
        mistake.text.count("\n", 0, found.start(1)),
        found.start(1) - mistake.text.rfind("\n", 0, found.start(1)) - 1,
    )
    return line, column, "`#` starts a comment here; quote a value that starts with it"


def _anything(mistake: _Mistake) -> _Answer:
    problem = mistake.problem.replace("'<stream end>'", "the end of the file")
    return mistake.here(problem.replace("end of stream", "end of the file"))


_RULES: tuple[Callable[[_Mistake], _Answer | None], ...] = (
    _other_format,
    _character,
    _quote,
    _special_start,
    _slashes,
    _colon,
    _group,
    _value,
    _bracket,
    _anything,
)
