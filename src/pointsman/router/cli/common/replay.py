"""Kept requests, or those of the audit, on a terminal: their ranks, also those of an earlier run, and a summary."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from pointsman.router.cli.common.options import ConfigCommandError
from pointsman.router.cli.common.output import paint, table
from pointsman.router.owner.kept_cases import NOW, Case

MAX_CHANGES = 20  # shown
FAR = 5  # a rank behind which a model that asks for few results does not see a tool
NOT_FOUND = 101  # in the place of a rank: not among the first 100
BEFORE = "before"


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
