"""Requests that are kept in a file, with the tools that they should find: read, added to, and given their ranks."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pointsman.config.errors import closest
from pointsman.config.files import ReplaceError, create, rewrite
from pointsman.core.model import NEEDS_SIGN_IN, ToolKey
from pointsman.router.gateway.meta_tools import MAX_QUERIES

USUAL_FILE = "pointsman.queries.yaml"  # beside the configuration
STDIN = "-"
MAX_BYTES = 1 << 20
WORST_RANK = 100
MAX_NAMED = 10  # projects, in one sentence
MAX_TOLD = 10  # mistakes
_MAX_DEPTH = 100  # of ruamel.yaml
NOW = "now"
_KEYS = ("query", "context", "project", "expected", "worst_rank")
EXAMPLE = "- {query: read a text file, expected: files:read_file, worst_rank: 3}"


class KeptCasesError(Exception):
    """The file cannot be used. `lines` are for the person."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


@dataclass(slots=True)
class Case:
    queries: list[str]
    expected: list[str]  # any one of them
    worst_rank: int | None = None  # None: any rank will do
    context: str | None = None
    project: str | None = None
    token: str | None = None
    ranks: dict[str, int | None] = field(default_factory=dict)  # by the name of the search; empty: its project is gone
    provider: str | None = None  # of the rank now
    replaced: list[str] = field(default_factory=list)  # searches that did not answer, so that local search did
    away: dict[str, str] = field(default_factory=dict)  # servers of expected tools that do not run, and their states
    cut: bool = False  # the audit has only a part of it
    new: bool = False  # an earlier run did not have it

    @property
    def missed(self) -> bool:
        if self.worst_rank is None:
            return False
        rank = self.ranks.get(NOW)
        return rank is None or rank > self.worst_rank

    @property
    def why_away(self) -> str:
        """Which servers of the expected tools do not run, in words."""
        verbs = {"failed": "has failed", NEEDS_SIGN_IN: NEEDS_SIGN_IN}
        return ", ".join(f"server `{one}` {verbs.get(state, f'is {state}')}" for one, state in self.away.items())

    @property
    def identity(self) -> str:
        return json.dumps([self.queries, self.context, self.project, sorted(self.expected)])

    def asked(self) -> dict[str, Any]:
        names = ("queries", "context", "project", "token", "expected")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def shown(self) -> dict[str, Any]:
        more: dict[str, Any] = {"cut": True} if self.cut else {}
        if self.worst_rank is not None:
            more |= {"worstRank": self.worst_rank, "missed": self.missed}
        return {**self.asked(), **more, "provider": self.provider, "ranks": self.ranks}

    def written(self) -> str:
        """The case as an entry of the file, on one line."""
        one, context = self.queries[0] if len(self.queries) == 1 else self.queries, self.context or None
        expected = self.expected[0] if len(self.expected) == 1 else self.expected
        values = (one, context, self.project, expected, self.worst_rank)
        pairs = [(key, value) for key, value in zip(_KEYS, values, strict=True) if value is not None]
        return f"- {{{', '.join(f'{key}: {_yaml(value)}' for key, value in pairs)}}}"


def read_kept(path: Path, projects: Collection[str] | None = None) -> list[Case]:
    """`projects` are those that entries may name; None: any. `-` reads standard input. Raises KeptCasesError."""
    try:
        with nullcontext(sys.stdin.buffer) if str(path) == STDIN else path.open("rb") as file:
            text = file.read(MAX_BYTES + 1).decode()
    except FileNotFoundError:
        raise KeptCasesError(
            f"There is no {path}. Write the requests to keep into it, one per entry:",
            f"  {EXAMPLE}",
            "or replay those of the audit log with `pointsman tools test --audit`.",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise KeptCasesError(f"{path} cannot be read: {error}") from None
    return read_text(text, Path("<stdin>") if str(path) == STDIN else path, projects)


def read_text(text: str, path: Path, projects: Collection[str] | None = None) -> list[Case]:
    """The cases of a file with this text; see `read_kept`. Raises KeptCasesError."""
    if len(text) > MAX_BYTES:
        raise KeptCasesError(f"{path} is larger than 1 MB.")
    if not text.strip():  # a file that was cut, more likely than a list without entries
        raise KeptCasesError(
            f"{path} is empty. Write `[]` for a list without requests, or one per entry:", f"  {EXAMPLE}"
        )
    entries = _parsed(text, path)
    if entries is None:  # only comments
        return []
    if not isinstance(entries, list):
        raise KeptCasesError(f"{path} must be a list of entries, such as:", f"  {EXAMPLE}")
    mistakes = [(number, said) for number, entry in enumerate(entries) for said in _mistakes(entry, projects)]
    if mistakes:
        raise KeptCasesError(*_told(mistakes, text, path))
    return list(map(_read_case, entries))


def _told(mistakes: Sequence[tuple[int, str]], text: str, path: Path) -> Iterator[str]:
    """One line for each mistake, up to MAX_TOLD, and an example."""
    lines = _entry_lines(text)
    for number, said in mistakes[:MAX_TOLD]:
        yield f"{path}: entry {number + 1}, line {lines[number]}: {said}"
    if (more := len(mistakes) - MAX_TOLD) > 0:
        yield f"And {more} more {'mistake' if more == 1 else 'mistakes'}."
    yield "An entry is, for example:"
    yield f"  {EXAMPLE}"


def _parsed(text: str, path: Path) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    from pointsman.config.yaml.syntax import explain_syntax

    try:
        return YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        found = explain_syntax(error, text, str(path), _MAX_DEPTH)
        raise KeptCasesError(f"{path} cannot be read: line {found.line}: {found.reason}") from None
    except RecursionError:
        raise KeptCasesError(f"{path} cannot be read: it is nested too deeply") from None
    except (ValueError, YAMLError) as error:
        reason = str(error).replace('in "<unicode string>", ', "").replace("\n", " ")
        raise KeptCasesError(f"{path} cannot be read: {reason}") from None


def _entry_lines(text: str) -> list[int]:
    """The lines on which the entries begin. Parses the text once more, for a message only."""
    from ruamel.yaml import YAML

    entries = YAML(typ="safe", pure=True).compose(text).value
    return [int(entry.start_mark.line) + 1 for entry in entries]


def _mistakes(entry: Any, projects: Collection[str] | None) -> Iterator[str]:
    """What is wrong in an entry, and what is right."""
    if not isinstance(entry, dict):
        yield "it must have `query` and `expected`."
        return
    yield from _wrong_keys(entry)
    worst, project = entry.get("worst_rank", 1), entry.get("project")
    if type(worst) is not int or not 1 <= worst <= WORST_RANK:
        yield "`worst_rank` must be a whole number from 1 to 100."
    for name in ("context", "project"):
        if not isinstance(entry.get(name), str | None):
            yield f"`{name}` must be a text."
    if isinstance(project, str) and projects is not None and project not in projects:
        yield _no_project(project, projects)
    if "query" in entry:
        yield from _wrong_queries(entry["query"])
    if "expected" in entry:
        yield from _wrong_tool_keys(entry["expected"])


def _wrong_keys(entry: Mapping[Any, Any]) -> Iterator[str]:
    for key in entry:
        if key not in _KEYS:
            near = closest(str(key)[:60], _KEYS)
            step = f". Did you mean `{near}`?" if near else f"; the keys are {_quoted(_KEYS)}."
            yield f"there is no key `{str(key)[:60]}`{step}"
    for key in ("query", "expected"):
        if key not in entry:
            yield f"`{key}` is missing."


def _wrong_queries(value: Any) -> Iterator[str]:
    queries = _texts(value)
    if queries is None:
        yield "`query` must be a text or a list of texts."
    elif len(queries) > MAX_QUERIES:
        yield f"`query` has {len(queries)} queries; at most {MAX_QUERIES} are taken at once."
    elif not all(query.strip() for query in queries):
        yield "`query` is empty. Write what a model would ask for."


def _wrong_tool_keys(value: Any) -> Iterator[str]:
    expected = _texts(value)
    if expected is None:
        yield "`expected` must be a text or a list of texts."
    for key in expected or ():
        if ToolKey.parse(key) is None:
            yield f"`{key[:60]}` is no tool key: write `server:tool`, as `pointsman tools list` does."


def _texts(value: Any) -> list[str] | None:
    """One text or a list of them; None: anything else."""
    texts = [value] if isinstance(value, str) else value
    return texts if isinstance(texts, list) and texts and all(isinstance(text, str) for text in texts) else None


def _read_case(entry: Mapping[str, Any]) -> Case:
    """A case of an entry without mistakes."""
    queries, expected = _texts(entry["query"]) or [], _texts(entry["expected"]) or []
    return Case(queries, expected, entry.get("worst_rank", 1), entry.get("context"), entry.get("project"))


def _no_project(name: str, known: Collection[str]) -> str:
    more = f" and {len(known) - MAX_NAMED} more" if len(known) > MAX_NAMED else ""
    shown = f"the projects are {_quoted(list(known)[:MAX_NAMED])}{more}" if known else "there are none"
    return f"there is no project `{name[:64]}`; {shown}."


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def keep(path: Path, case: Case) -> int:
    """Add a case at the end of the file, which is created if it is missing; return its number.

    Every other character of the file stays. Raises KeptCasesError: nothing was written.
    """
    entry, numbers = case.written(), []

    def appended(text: str) -> str:
        before = read_text(text, path) if text.strip() else []
        line_end = "" if not text or text.endswith("\n") else "\n"
        after = f"{text}{line_end}{entry}\n"
        if len(after.encode()) > MAX_BYTES or _read_or_none(after, path) != [*before, case]:
            raise KeptCasesError(f"{path} has a form to which no entry can be added at its end. Add it by hand:", entry)
        if case in before:
            raise KeptCasesError(f"{path} has this request already: entry {before.index(case) + 1}.")
        numbers.append(len(before) + 1)
        return after

    try:
        try:
            create(path, appended("").encode(), mode=0o644)
        except FileExistsError:
            rewrite(path, appended)
    except ReplaceError as error:
        raise KeptCasesError(str(error)) from None
    return int(numbers[-1])


def _read_or_none(text: str, path: Path) -> list[Case] | None:
    try:
        return read_text(text, path)
    except KeptCasesError:
        return None


def _yaml(value: str | int | list[str]) -> str:
    """A value in YAML's flow style. JSON is YAML but for characters that YAML does not accept as they are."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in text)


def add_ranks(
    cases: Sequence[Case], answers: Sequence[Mapping[str, Any] | None], away: Mapping[str, str] | None = None
) -> None:
    """`away` are the servers that do not run, and their states."""
    states = away or {}
    for case, answer in zip(cases, answers, strict=True):
        servers = dict.fromkeys(key.partition(":")[0] for key in case.expected)
        case.away = {server_id: states[server_id] for server_id in servers if server_id in states}
        if answer is not None:
            case.ranks |= {name: found["rank"] for name, found in answer.items()}
            case.provider = answer[NOW]["provider"]
            case.replaced = [name for name, found in answer.items() if name not in (NOW, found["provider"])]
