"""What is written down, and what never is."""

from __future__ import annotations

import asyncio
import stat
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from pointsman.config.model import CurrentConfig, GatewayConfig
from pointsman.core.errors import CallTimeoutError, DownstreamError, ServerUnavailableError, UnknownToolError
from pointsman.core.seams import ProtocolError
from pointsman.router.audit.display import json_line
from pointsman.router.audit.journal import MAX_LINE_BYTES
from pointsman.router.audit.log import CHANGES_BURST, UNAUTHORIZED_BURST
from pointsman.router.audit.segments import FOLDER, list_segments
from tests.router.audit.samples import SECRET, Clock, Observed, open_log, recording_arguments, request, rows

FIELDS = [
    *("seq", "time", "requestId", "kind", "token", "project", "client", "queries", "toolKey", "serverId", "method"),
    *("outcome", "code", "ms", "results", "bytes", "provider", "fallback"),
]


def journal_bytes(state_dir: Path) -> bytes:
    return b"".join(segment.path.read_bytes() for segment in list_segments(state_dir / FOLDER))


def test_a_row_has_exactly_the_agreed_fields(tmp_path: Path) -> None:
    wall, monotonic = Clock(1_800_000_000.5), Clock(7.0)
    log = open_log(tmp_path, wall=wall, monotonic=monotonic)
    record = log.begin(request("abc"), "execute", tool_key="time:now", server_id="time", arguments={"tz": "UTC"})
    monotonic.now += 0.0125
    record.finish("ok", results=2, bytes=345)
    (row,) = rows(tmp_path)
    assert list(msgspec.to_builtins(row)) == FIELDS
    assert json_line(row) == (
        '{"seq":1,"time":"2027-01-15T08:00:00.500Z","requestId":"abc","kind":"execute","token":"laptop",'
        '"project":"research","client":"claude-code","queries":null,"toolKey":"time:now","serverId":"time",'
        '"method":"tools/call","outcome":"ok","code":null,"ms":12.5,"results":2,"bytes":345,"provider":null,'
        '"fallback":null}'
    )


def test_a_discovery_names_its_queries_and_its_provider(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    record = log.begin(request(project=None), "discovery", queries=["what time is it"])
    record.finish("ok", results=3, bytes=10, provider="bm25", fallback=True)
    (row,) = rows(tmp_path)
    assert (row.kind, row.queries, row.tool_key, row.project) == ("discovery", ["what time is it"], None, None)
    assert (row.provider, row.fallback, row.results) == ("bm25", True, 3)


def test_only_the_first_finish_counts(tmp_path: Path) -> None:
    seen = Observed()
    record = open_log(tmp_path, observers=[seen]).begin(request(), "execute", tool_key="a:b", server_id="a")
    record.finish("timeout", "timeout")
    record.finish("ok")
    (row,) = rows(tmp_path)
    assert (row.outcome, row.code) == ("timeout", "timeout")
    assert [outcome.outcome for _, outcome in seen.calls] == ["timeout"]


def test_a_call_under_way_has_no_outcome_yet(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.begin(request(), "execute", tool_key="a:b", server_id="a")
    (row,) = rows(tmp_path)
    assert (row.outcome, row.ms) == (None, None)


def test_a_refused_call_is_a_row_of_its_own(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.record_refusal("unauthorized", kind="execute", method="tools/call", token_id=None, client="curl")
    log.record_refusal("denied", kind="discovery", method="tools/call", token_id="laptop", project_id="secret")
    log.record_refusal("unknown_tool", kind="execute", method="tools/call", token_id="laptop", tool_key="a:b")
    assert [(row.outcome, row.code, row.token, row.seq) for row in rows(tmp_path)] == [
        ("denied", "unauthorized", None, 1),
        ("denied", "denied", "laptop", 2),
        ("denied", "unknown_tool", "laptop", 3),
    ]


@pytest.mark.parametrize("code", ["unauthorized", "unknown_host", "unknown_origin", "denied"])
def test_strangers_get_a_bounded_number_of_rows_and_are_counted_all(tmp_path: Path, code: str) -> None:
    clock, seen = Clock(), Observed()
    log = open_log(tmp_path, monotonic=clock, observers=[seen])
    for _ in range(UNAUTHORIZED_BURST + 50):
        log.record_refusal(code, kind="execute", method="tools/call", token_id=None)
    assert len(rows(tmp_path)) == UNAUTHORIZED_BURST
    assert len(seen.calls) == UNAUTHORIZED_BURST + 50

    log.record_refusal("denied", kind="execute", method="tools/call", token_id="laptop")  # a known token
    clock.now += 1.0
    for _ in range(50):
        log.record_refusal(code, kind="execute", method="tools/call", token_id=None)
    assert len(rows(tmp_path)) == UNAUTHORIZED_BURST + 1 + 10


def test_a_server_that_changes_its_tools_all_the_time_gets_a_bounded_number_of_rows(tmp_path: Path) -> None:
    seen, clock = Observed(), Clock()
    log = open_log(tmp_path, observers=[seen], monotonic=clock)
    log.record_changed_tools("churning", [f"t{number}" for number in range(CHANGES_BURST + 50)])
    log.record_changed_tools("other", ["paint"])
    written = rows(tmp_path)
    assert [row.server_id for row in written] == ["churning"] * CHANGES_BURST + ["other"]
    assert len(seen.calls) == CHANGES_BURST + 51
    last = written[-1]
    assert (last.kind, last.tool_key, last.method, last.outcome) == ("change", "other:paint", "tools/list", "ok")
    assert (last.code, last.token, last.project) == ("definition_changed", None, None)


def test_seq_goes_on_where_the_last_run_ended(tmp_path: Path) -> None:
    for run in range(3):
        log = open_log(tmp_path)
        for _ in range(4):
            log.begin(request(f"run{run}"), "execute", tool_key="a:b", server_id="a").finish("ok")
        log.close()
    assert [(row.seq, row.request_id) for row in rows(tmp_path)] == [(n + 1, f"run{n // 4}") for n in range(12)]


def test_the_order_is_that_of_the_calls_though_the_clock_jumps_back(tmp_path: Path) -> None:
    wall = Clock()
    log = open_log(tmp_path, wall=wall)
    for step in (0, -3600, 7200):
        wall.now += step
        log.begin(request(str(step)), "execute", tool_key="a:b", server_id="a").finish("ok")
    assert [row.request_id for row in rows(tmp_path)] == ["0", "-3600", "7200"]


def test_the_files_are_private(tmp_path: Path) -> None:
    open_log(tmp_path).begin(request(), "execute").finish("ok")
    folder = tmp_path / FOLDER
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\x0b", "\x85", "\u2028", "\u2029", "\x00", "\x1b[2K\r"])
def test_nobody_can_forge_a_line(tmp_path: Path, newline: str) -> None:
    forged = newline + '{"t":"intent","seq":99,"time_ms":1,"request_id":"forged","kind":"execute"}' + newline
    log = open_log(tmp_path, current=recording_arguments())
    call = log.begin(
        request(client=forged, method=forged),
        "execute",
        queries=[forged],
        tool_key=forged,
        server_id=forged,
        arguments={forged: forged},
    )
    call.finish("error", forged, provider=forged)
    log.record_refusal(forged, kind="execute", method=forged, token_id=None, client=forged, tool_key=forged)
    assert [row.seq for row in rows(tmp_path)] == [1, 2]
    for row in rows(tmp_path):
        line = json_line(row)
        assert len(line.splitlines()) == 1
        assert line.isprintable()
        assert msgspec.json.decode(line)["client"] == forged


def test_a_token_is_masked_wherever_a_caller_puts_it(tmp_path: Path) -> None:
    log = open_log(tmp_path, current=recording_arguments())
    call = log.begin(
        request(client=f"x{SECRET}", method=SECRET),
        "execute",
        queries=[f"use {SECRET} please", "y" * 490 + SECRET, SECRET * 30],
        tool_key=f"time:{SECRET}",
        server_id=SECRET,
        arguments={"note": SECRET, SECRET: 1, "deep": [{"x": [f"see {SECRET}"]}]},
    )
    call.finish("error", SECRET, provider=SECRET)
    log.record_refusal(
        SECRET, kind="execute", method=SECRET, token_id=None, client=SECRET, request_id=SECRET, tool_key=SECRET
    )
    assert b"aB3-" not in journal_bytes(tmp_path)
    assert rows(tmp_path)[0].tool_key == "time:***"


def test_arguments_are_recorded_only_if_the_configuration_says_so(tmp_path: Path) -> None:
    current = CurrentConfig(GatewayConfig())
    log = open_log(tmp_path, current=current)
    log.begin(request(), "execute", arguments={"a": 1}).finish("ok")
    current.replace(recording_arguments().config)
    log.begin(request(), "execute", arguments={"a": 1}).finish("ok")
    first, second = rows(tmp_path)
    assert "arguments" not in msgspec.to_builtins(first)
    assert msgspec.to_builtins(second)["arguments"] == {"a": 1}


@pytest.mark.parametrize("text", ["x" * 1_000_000, "\x01" * 1_000_000, "\U0001f600" * 100_000, "\ud800" * 100_000])
def test_a_row_is_bounded_whatever_a_caller_sends(tmp_path: Path, text: str) -> None:
    log = open_log(tmp_path, current=recording_arguments())
    call = log.begin(
        request(client=text, method=text),
        "execute",
        queries=[text] * 1000,
        tool_key=text,
        server_id=text,
        arguments={text: [text] * 10},
    )
    call.finish("error", text, provider=text)
    lines = journal_bytes(tmp_path).splitlines()
    assert len(lines) == 2
    assert max(map(len, lines)) < MAX_LINE_BYTES
    (row,) = rows(tmp_path)
    assert row.outcome == "error"


@pytest.mark.parametrize(
    ("error", "outcome", "code"),
    [
        (None, "ok", None),
        (CallTimeoutError("a", 1.0), "timeout", "timeout"),
        (UnknownToolError("a:b"), "denied", "unknown_tool"),
        (ServerUnavailableError("a", "it died"), "error", "server_unavailable"),
        (DownstreamError(-32002, "not here"), "error", "-32002"),
        (ProtocolError(-32602, "no"), "error", "-32602"),
        (asyncio.CancelledError(), "cancelled", None),
        (RuntimeError("a bug"), "error", "internal"),
    ],
)
def test_a_block_writes_its_outcome_however_it_ends(
    tmp_path: Path, error: BaseException | None, outcome: str, code: str | None
) -> None:
    log = open_log(tmp_path)
    with suppress(BaseException), log.begin(request(), "read", server_id="a"):
        if error is not None:
            raise error
    (row,) = rows(tmp_path)
    assert (row.outcome, row.code) == (outcome, code)


def test_what_a_block_finished_itself_stays_so(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    with suppress(RuntimeError), log.begin(request(), "execute", server_id="a") as record:
        record.finish("ok", bytes=7)
        raise RuntimeError("too late")
    (row,) = rows(tmp_path)
    assert (row.outcome, row.bytes) == ("ok", 7)


def test_a_next_round_is_a_row_of_its_own(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    with log.begin(request(), "read", tool_key="a:b", server_id="a") as record:
        record.finish("input_required")
        record.begin_next_round()
    first, second = rows(tmp_path)
    assert (first.seq, first.outcome, second.seq, second.outcome) == (1, "input_required", 2, "ok")
    assert (second.tool_key, second.server_id, second.request_id) == ("a:b", "a", first.request_id)
