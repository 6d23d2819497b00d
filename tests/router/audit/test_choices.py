"""Which calls count as the answer to a discovery."""

from __future__ import annotations

from pathlib import Path

from pointsman.router.audit.choices import WITHIN_MS, WITHIN_ROWS, read_choices
from pointsman.router.audit.log import AuditLog
from tests.router.audit.samples import Clock, open_log, request


class Told:
    """Writes a story of discoveries and calls into an audit log."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self.clock = Clock()
        self._log: AuditLog = open_log(state_dir, wall=self.clock)

    def discovers(
        self,
        *queries: str,
        token: str = "laptop",
        project: str | None = "research",
        results: int | None = 5,
        ok: bool = True,
    ) -> None:
        with self._log.begin(request(token=token, project=project), "discovery", queries=queries) as record:
            record.finish("ok" if ok else "error", results=results)

    def calls(self, tool_key: str, *, ok: bool = True, token: str = "laptop", project: str | None = "research") -> None:
        with self._log.begin(request(token=token, project=project), "execute", tool_key=tool_key) as record:
            record.finish("ok" if ok else "error")

    def choices(self, most: int = 100, since_ms: int | None = None) -> dict[tuple[str, ...], list[str]]:
        return {choice.queries: choice.tool_keys for choice in read_choices(self.state_dir, since_ms, most)}


def test_what_the_same_caller_executes_after_a_discovery_counts(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.discovers("read a file", "send it")
    told.calls("files:read")
    told.calls("mail:send")
    told.calls("files:read")
    told.calls("files:write", ok=False)
    told.calls("files:erase", token="phone")
    told.calls("files:move", project=None)
    assert told.choices() == {("read a file", "send it"): ["files:read", "mail:send"]}


def test_a_call_counts_for_the_latest_discovery_before_it_and_for_no_earlier_one(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.discovers("save my shopping list")
    told.discovers("which page covers installation")
    told.calls("archive:documents_search")
    told.discovers("send a message", token="phone")  # of somebody else
    told.discovers("read the page")
    told.calls("web:read")
    told.calls("archive:documents_search")
    assert told.choices() == {
        ("which page covers installation",): ["archive:documents_search"],
        ("read the page",): ["web:read", "archive:documents_search"],
    }


def test_a_discovery_whose_results_were_not_recorded_counts(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.discovers("read a file", results=None)
    told.calls("files:read")
    assert told.choices() == {("read a file",): ["files:read"]}


def test_a_discovery_that_listed_nothing_is_skipped_and_ends_the_one_before(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.discovers("save this log to a file")
    told.calls("files:write")
    told.discovers("send a message", token="phone")
    told.discovers("order a pizza", results=0)
    told.calls("time:get_current_time")
    told.calls("mail:send", token="phone")
    assert told.choices() == {("save this log to a file",): ["files:write"], ("send a message",): ["mail:send"]}


def test_a_discovery_that_was_refused_ends_the_one_before(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.discovers("save this log to a file")
    told.discovers("what time is it", ok=False)
    told.calls("time:get_current_time")
    assert told.choices() == {}


def test_a_request_that_the_audit_keeps_only_in_part_is_marked(tmp_path: Path) -> None:
    told = Told(tmp_path)
    for queries in (["short…"], ["long " * 200], ["a"] * 30, ["exactly" + "x" * 493]):
        told.discovers(*queries)
        told.calls("files:read")
    cut = [(len(choice.queries), len(choice.queries[0]), choice.cut) for choice in read_choices(tmp_path, None, 9)]
    assert cut == [(1, 6, False), (1, 500, True), (20, 1, True), (1, 500, False)]


def test_what_comes_much_later_does_not_count(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.discovers("soon")
    told.clock.now += WITHIN_MS / 1000
    told.calls("a:soon")
    told.discovers("late")
    told.clock.now += WITHIN_MS / 1000 + 1
    told.calls("a:late")
    told.discovers("far")
    for number in range(WITHIN_ROWS):
        told.calls(f"a:n{number}", token="phone")  # of somebody else
    told.calls("a:near")
    for _ in range(WITHIN_ROWS - 1):
        told.calls("a:near")
    told.calls("a:far")
    assert told.choices() == {("soon",): ["a:soon"], ("far",): ["a:near"]}


def test_a_repeated_request_counts_once_and_the_latest_are_taken(tmp_path: Path) -> None:
    told = Told(tmp_path)
    for number in range(30):
        told.discovers("again")
        told.calls("a:old" if number < 29 else "a:new")
        told.clock.now += 301
    told.discovers("last")
    told.calls("a:last")
    assert told.choices() == {("again",): ["a:new"], ("last",): ["a:last"]}
    assert told.choices(most=1) == {("last",): ["a:last"]}
    assert told.choices(since_ms=int(told.clock.now * 1000)) == {("last",): ["a:last"]}
