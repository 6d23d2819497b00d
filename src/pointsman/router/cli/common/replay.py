"""Kept requests, or those of the audit, on a terminal: their ranks, also those of an earlier run, and a summary."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pointsman.router.cli.common.options import ConfigCommandError
from pointsman.router.cli.common.output import paint, table
from pointsman.router.owner.search.kept_cases import NOW, Case

MAX_CHANGES = 20  # shown
FAR = 5  # a rank behind which a model that asks for few results does not see a tool
NOT_FOUND = 101  # in the place of a rank: not among the first 100
BEFORE = "before"


def read_earlier(path: Path) -> dict[str, int | None]:
    """The ranks that `--json` printed in an earlier run, by the identity of their cases. Raises ConfigCommandError."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigCommandError(f"There is no {path}. `pointsman tools test --json > {path}` writes it.") from None
    except OSError as error:
        raise ConfigCommandError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise _no_earlier_run(path) from None
    try:
        shown = json.loads(text)["cases"]
        earlier = {
            Case(one["queries"], one["expected"], None, one.get("context"), one.get("project")).identity: one["ranks"]
            for one in shown
        }
        ranks = {identity: found[NOW] for identity, found in earlier.items() if NOW in found}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise _no_earlier_run(path) from None
    if not all(rank is None or (type(rank) is int and rank > 0) for rank in ranks.values()):
        raise _no_earlier_run(path)
    return ranks


def _no_earlier_run(path: Path) -> ConfigCommandError:
    return ConfigCommandError(f"{path} is not what `pointsman tools test --json` prints.")


def add_earlier(cases: Sequence[Case], earlier: Mapping[str, int | None]) -> None:
    """Add the ranks of an earlier run; a case that it did not have is new."""
    for case in cases:
        case.new = case.identity not in earlier
        if case.ranks and not case.new:
            case.ranks = {BEFORE: earlier[case.identity], **case.ranks}


def summarize(cases: Sequence[Case]) -> dict[str, dict[str, float]]:
    """By the name of the search: the shares of requests whose tool is first, among the first 3, 5 and 100.

    Compared with an earlier run, only requests count that were ranked in both, if there are any.
    """
    ranked = [case.ranks for case in cases if case.ranks]
    counted = [ranks for ranks in ranked if BEFORE in ranks] or ranked
    summary: dict[str, dict[str, float]] = {}
    for name in counted[0] if counted else ():
        found = [ranks[name] for ranks in counted]
        within = {
            key: sum(rank is not None and rank <= most for rank in found) / len(found)
            for key, most in (("first", 1), ("firstThree", 3), ("firstFive", 5), ("found", 100))
        }
        reciprocal = sum(1 / rank for rank in found if rank is not None) / len(found)
        summary[name] = {key: round(value, 3) for key, value in {**within, "mrr": reciprocal}.items()}
    return summary


def case_lines(cases: Sequence[Case]) -> Iterator[str]:
    """One line for each request."""
    columns = _columns(cases)
    rows: list[tuple[str, ...]] = [("REQUEST", "EXPECTED", *(name.upper() for name in columns), "")]
    for case in cases:
        ranks = [_rank(case, name) for name in columns]
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
    """An earlier run comes first."""
    searches = dict.fromkeys(name for case in cases for name in case.ranks)
    compared = BEFORE in searches or any(case.new for case in cases)
    return [*([BEFORE] if compared else []), *(name for name in searches if name != BEFORE)]


def _difference(case: Case) -> float:
    shares = [0.0 if rank is None else 1 / rank for rank in case.ranks.values()]
    return max(shares) - min(shares)


def _verdict(case: Case) -> str:
    why = f" ({case.why_away})" if case.away else ""
    if not case.ranks:
        return paint("its project is gone", "yellow")
    if case.missed:
        return paint(f"missed: wanted {case.worst_rank} or better{why}", "red")
    cut = "cut in the audit" if case.cut else ""
    if case.worst_rank is None and case.ranks.get(NOW) is None:
        return paint("; ".join(filter(None, (f"not found{why}", cut))), "red")
    return paint(cut, "yellow") if cut else ""


def _rank(case: Case, name: str) -> str:
    if not case.ranks:
        return "?"
    if name not in case.ranks:
        return "new"
    rank = case.ranks[name]
    return "-" if rank is None else str(rank)


def _clipped(text: str, room: int = 48) -> str:
    line = " ".join(text.split())
    return line if len(line) <= room else f"{line[: room - 1]}…"
