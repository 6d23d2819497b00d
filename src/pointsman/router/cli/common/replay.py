"""Requests with the tools that they should find: read from a file or from the audit, and shown with their ranks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pointsman.router.cli.common.options import ConfigCommandError
from pointsman.router.cli.common.output import paint, table

USUAL_FILE = "pointsman.queries.yaml"  # beside the configuration
MAX_BYTES = 1 << 20
MAX_CHANGES = 20  # shown
FAR = 5  # a rank behind which a model that asks for few results does not see a tool
NOT_FOUND = 101  # in the place of a rank: not among the first 100
NOW, BEFORE = "now", "before"
_KEYS = {"query", "context", "project", "expected", "worst_rank"}
_EXAMPLE = "- {query: read a text file, expected: files:read_file, worst_rank: 3}"


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

    @property
    def missed(self) -> bool:
        if self.worst_rank is None:
            return False
        rank = self.ranks.get(NOW)
        return rank is None or rank > self.worst_rank

    @property
    def identity(self) -> str:
        return json.dumps([self.queries, self.context, self.project, sorted(self.expected)])

    def asked(self) -> dict[str, Any]:
        names = ("queries", "context", "project", "token", "expected")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def shown(self) -> dict[str, Any]:
        more = {} if self.worst_rank is None else {"worstRank": self.worst_rank, "missed": self.missed}
        return {**self.asked(), **more, "provider": self.provider, "ranks": self.ranks}


def read_kept(path: Path) -> list[Case]:
    """Raises ConfigCommandError."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
        entries = YAML(typ="safe", pure=True).load(text.decode()) if len(text) <= MAX_BYTES else None
    except FileNotFoundError:
        raise ConfigCommandError(
            f"There is no {path}. Write the requests to keep into it, one per entry:",
            f"  {_EXAMPLE}",
            "or replay those of the audit log with `pointsman tools test --audit`.",
        ) from None
    except (OSError, UnicodeDecodeError, YAMLError, RecursionError) as error:
        raise ConfigCommandError(*f"{path} cannot be read: {error}".split("\n")) from None
    if not isinstance(entries, list) or not entries:
        raise ConfigCommandError(f"{path} must be a list of entries (at most 1 MB), such as:", f"  {_EXAMPLE}")
    return [_read_case(entry, f"{path}: entry {number}") for number, entry in enumerate(entries, 1)]


def _read_case(entry: Any, where: str) -> Case:
    if not isinstance(entry, dict) or not {"query", "expected"} <= entry.keys() or entry.keys() - _KEYS:
        raise ConfigCommandError(
            f"{where} must have `query` and `expected`; it may have `context`, `project`, `worst_rank`:",
            f"  {_EXAMPLE}",
        )
    worst, context, project = entry.get("worst_rank", 1), entry.get("context"), entry.get("project")
    if type(worst) is not int or not 1 <= worst <= 100:
        raise ConfigCommandError(f"{where}: `worst_rank` must be a whole number from 1 to 100.")
    for name, value in (("context", context), ("project", project)):
        if value is not None and not isinstance(value, str):
            raise ConfigCommandError(f"{where}: `{name}` must be a text.")
    return Case(
        _texts(entry["query"], f"{where}: `query`"),
        _texts(entry["expected"], f"{where}: `expected`"),
        worst,
        context,
        project,
    )


def _texts(value: Any, where: str) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise ConfigCommandError(f"{where} must be a text or a list of texts.")
    return texts


def add_ranks(cases: Sequence[Case], answers: Sequence[Mapping[str, Any] | None]) -> None:
    for case, answer in zip(cases, answers, strict=True):
        if answer is not None:
            case.ranks |= {name: found["rank"] for name, found in answer.items()}
            case.provider = answer[NOW]["provider"]
            case.replaced = [name for name, found in answer.items() if name not in (NOW, found["provider"])]


def add_earlier(cases: Sequence[Case], path: Path) -> None:
    """Add the ranks that `--json` printed in an earlier run. Raises ConfigCommandError."""
    try:
        shown = json.loads(path.read_text(encoding="utf-8"))["cases"]
        earlier = {
            Case(one["queries"], one["expected"], None, one.get("context"), one.get("project")).identity: one["ranks"]
            for one in shown
        }
        ranks = {identity: found[NOW] for identity, found in earlier.items() if NOW in found}
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigCommandError(f"{path} is not what `pointsman tools test --json` prints.") from None
    for case in cases:
        if case.identity in ranks and case.ranks:
            case.ranks = {BEFORE: ranks[case.identity], **case.ranks}


def summarize(cases: Sequence[Case]) -> dict[str, dict[str, float]]:
    """By the name of the search: the shares of requests whose tool is first, among the first 3, 5 and 100."""
    summary: dict[str, dict[str, float]] = {}
    for name in _columns(cases):
        ranks = [case.ranks[name] for case in cases if name in case.ranks]
        within = {
            key: sum(rank is not None and rank <= most for rank in ranks) / len(ranks)
            for key, most in (("first", 1), ("firstThree", 3), ("firstFive", 5), ("found", 100))
        }
        reciprocal = sum(1 / rank for rank in ranks if rank is not None) / len(ranks)
        summary[name] = {key: round(value, 3) for key, value in {**within, "mrr": reciprocal}.items()}
    return summary


def case_lines(cases: Sequence[Case]) -> Iterator[str]:
    """One line for each request."""
    columns = _columns(cases)
    rows: list[tuple[str, ...]] = [("REQUEST", "EXPECTED", *(name.upper() for name in columns), "")]
    for case in cases:
        ranks = [_rank(case.ranks.get(name)) if case.ranks else "?" for name in columns]
        rows.append((_clipped(" | ".join(case.queries)), _clipped(" or ".join(case.expected)), *ranks, _verdict(case)))
    return table(rows)


def changed_or_far(cases: Sequence[Case]) -> list[Case]:
    """The requests that the searches rank differently, the largest difference first; then those far behind, or missed.

    Nobody has said how far behind the tools of these requests may come.
    """
    different = [case for case in cases if len(set(case.ranks.values())) > 1]
    same = [case for case in cases if case.ranks and len(set(case.ranks.values())) == 1]
    far = [case for case in same if (case.ranks[NOW] or NOT_FOUND) > FAR]
    return [
        *sorted(different, key=lambda case: -_difference(case)),
        *sorted(far, key=lambda case: -(case.ranks[NOW] or NOT_FOUND)),
    ]


def summary_lines(cases: Sequence[Case]) -> Iterator[str]:
    providers = ", ".join(sorted({case.provider for case in cases if case.provider}))
    rows: list[tuple[str, ...]] = [("SEARCH", "FIRST", "TOP 3", "TOP 5", "FOUND", "MRR")]
    for name, figures in summarize(cases).items():
        label = f"{name} ({providers})" if name == NOW and providers else name
        rows.append((label, *(f"{figure:.2f}" for figure in figures.values())))
    return table(rows)


def _columns(cases: Sequence[Case]) -> list[str]:
    return list(dict.fromkeys(name for case in cases for name in case.ranks))


def _difference(case: Case) -> float:
    shares = [0.0 if rank is None else 1 / rank for rank in case.ranks.values()]
    return max(shares) - min(shares)


def _verdict(case: Case) -> str:
    if not case.ranks:
        return paint("its project is gone", "yellow")
    if case.missed:
        return paint(f"missed: wanted {case.worst_rank} or better", "red")
    if case.worst_rank is None and case.ranks.get(NOW) is None:
        return paint("missed: not found", "red")
    return ""


def _rank(rank: int | None) -> str:
    return "-" if rank is None else str(rank)


def _clipped(text: str, room: int = 48) -> str:
    line = " ".join(text.split())
    return line if len(line) <= room else f"{line[: room - 1]}…"
