"""What the soak takes for wrong: a check that cannot fail would be worth nothing."""

from __future__ import annotations

import os

import msgspec
import pytest

from bench.soak.figures import ALLOWED_MB, Figures, Sample, growth
from bench.soak.reconcile import Sent, reconcile
from pointsman.router.audit.rows import Ending, Intent, Kind, Outcome, Row, row_of

CALL = "tools/call"
OK = Sent("id00000001", CALL, "ok")
FAILED = Sent("id00000001", CALL, "error", "timeout")


def row(
    outcome: Ending | None = "ok",
    code: str | None = None,
    *,
    request_id: str = OK.id,
    kind: Kind = "execute",
    method: str = CALL,
    arguments: bool = True,
) -> Row:
    given = {"id": request_id} if arguments else msgspec.UNSET
    intent = Intent(1, 0, "r", kind, method=method, arguments=given)
    return row_of(intent, Outcome(1, outcome, code) if outcome else None)


@pytest.mark.parametrize(
    ("sent", "executions", "rows"),
    [
        (OK, 1, [row()]),
        (FAILED, 0, [row("timeout", "timeout")]),
        (FAILED, 1, [row("timeout", "timeout")]),
        (Sent(OK.id, CALL, "refused", "rate_limited"), 0, []),
        (Sent(OK.id, CALL, "refused", "rate_limited"), 0, [row("error", "rate_limited")]),
        (Sent(OK.id, CALL, "left"), 1, [row("cancelled")]),
        (
            Sent(OK.id, "resources/read", "error", "-32002"),
            0,
            [row("denied", "unknown_resource", kind="read", method="resources/read", arguments=False)],
        ),
    ],
)
def test_what_agrees_passes(sent: Sent, executions: int, rows: list[Row]) -> None:
    assert reconcile([sent], {sent.id: executions} if executions else {}, rows) == []


@pytest.mark.parametrize(
    ("sent", "executions", "rows", "said"),
    [
        (OK, 1, [], "has 0 rows"),
        (OK, 1, [row(), row()], "has 2 rows"),
        (OK, 1, [row("interrupted")], "says interrupted"),
        (OK, 1, [row(None)], "has no outcome"),
        (OK, 0, [row()], "executed 0 times"),
        (OK, 2, [row()], "executed 2 times"),
        (FAILED, 1, [row()], "says ok"),
        (FAILED, 1, [row("error", "internal")], "says error internal"),
        (FAILED, 1, [], "executed 1 times without a row"),
        (Sent(OK.id, CALL, "refused", "rate_limited"), 1, [], "refused and executed"),
        (Sent(OK.id, CALL, "left"), 1, [], "has 0 rows"),
        (OK, 1, [row(), row("denied", "unknown_prompt", method="prompts/get", arguments=False)], "no client heard so"),
    ],
)
def test_what_disagrees_is_said(sent: Sent, executions: int, rows: list[Row], said: str) -> None:
    assert said in "\n".join(reconcile([sent], {sent.id: executions} if executions else {}, rows))


def test_an_execution_that_no_client_asked_for_is_said() -> None:
    problems = reconcile([OK], {OK.id: 1, "id00000002": 1}, [row()])
    assert problems == [
        "id00000002 was executed 1 times without a row",
        "id00000002 was executed, but no client sent it",
    ]


def test_growth_is_that_of_the_line_through_all_samples() -> None:
    times = [float(second) for second in range(100)]
    assert growth(times, [50 + second for second in times]) == pytest.approx(99)
    assert growth(times, [50.0] * 100) == 0
    assert abs(growth(times, [50.0] * 99 + [80.0])) < 5  # one peak at the end


@pytest.mark.parametrize(("grown_mb", "passes"), [(0.9 * ALLOWED_MB, True), (1.2 * ALLOWED_MB, False)])
def test_memory_that_grows_in_the_second_half_is_a_problem(grown_mb: float, passes: bool) -> None:
    figures = Figures(os.getpid(), seconds=3600)
    for second in range(3600):
        warm_up_mb, later_mb = min(second, 1800) / 30, max(0, second - 1800) / 1800 * grown_mb
        figures.samples.append(Sample(second, 80 + warm_up_mb + later_mb, handles=50, threads=10))
    assert (figures.problems() == []) is passes
