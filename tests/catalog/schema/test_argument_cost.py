"""Whatever a server's schema and a caller's arguments are, a check costs at most 50 ms of CPU and 20 MB."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from pointsman.catalog.schema import check_program
from pointsman.catalog.schema.arguments import ArgumentCheck, DeferredCheck
from pointsman.core.errors import InvalidArgumentsError
from pointsman.router.gateway.check_process import CheckProcess

Json = dict[str, Any]

CPU_S = 0.05
# The kernel counts the check process's CPU time by its ticks. Beside other load a process may run mostly between two of
# them, and was seen to get 0.09 s before it was ended. Without a limit the costly jobs here take seconds to hours.
CHILD_CPU_S = 0.2
MEMORY_KB = 20 * 1024
TRIES = 3  # the cheapest counts: a collection, a page fault or a busy machine makes the same work take more CPU time
WITHOUT_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)  # a smaller example would take minutes to find
BODY_BYTES = 4_194_304  # larger arguments and schemas never arrive (`limits.body_bytes`)
NAMES = ["a", "b", "c"]
PATTERNS = [
    "^[a-z]+$",
    "(a+)+$",
    "(?=a)(a+)+$",
    r"^(a|a)*b\1",
    r"\p{L}{500}",
    "[^a]{1000}",
    "((a{50}){50}){50}",
    "a.*b.*c",
]

names = st.sampled_from(NAMES)
references = st.integers(0, 7).map(lambda n: {"$ref": f"#/$defs/{n}"})
many = st.sampled_from([1, 2, 3, 30, 300])


def repeated(schemas: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    few = st.lists(schemas, min_size=1, max_size=3)
    return st.one_of(few, st.builds(lambda entries, times: entries * times, few, many))


leaves = st.one_of(
    references,
    st.sampled_from(
        [{}, True, False, {"type": "integer"}, {"type": "string"}, {"uniqueItems": True}, {"minLength": 3}]
    ),
    st.sampled_from(PATTERNS).map(lambda pattern: {"pattern": pattern}),
    st.builds(lambda n: {"enum": [{"v": k} for k in range(n)]}, many),
    st.builds(lambda n: {"enum": [*range(n), *map(str, range(n))]}, many),
    st.builds(lambda n: {"required": [f"r{k}" for k in range(n)]}, many),
)


def holding(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    return st.one_of(
        st.dictionaries(st.sampled_from(["allOf", "anyOf", "oneOf"]), repeated(inner), min_size=1, max_size=2),
        st.dictionaries(names, inner, min_size=1).map(lambda parts: {"properties": parts}),
        st.dictionaries(st.sampled_from(["items", "contains", "additionalProperties", "not"]), inner, min_size=1),
        st.dictionaries(st.sampled_from(["a", "^.", "[^b]"]), inner, min_size=1).map(
            lambda p: {"patternProperties": p}
        ),
        st.dictionaries(st.sampled_from(["if", "then", "else", "unevaluatedProperties"]), inner, min_size=1),
    )


sub_schemas = st.recursive(leaves, holding, max_leaves=6)


@st.composite
def schemas(draw: st.DrawFn) -> Json:
    definitions = {str(n): draw(sub_schemas) for n in range(8)}
    chained = draw(st.booleans())
    if chained:  # each names the next one twice: small, and two to the power of its depth
        keyword = draw(st.sampled_from(["allOf", "anyOf", "oneOf"]))
        for n in range(40):
            step = {"properties": {"a": {"$ref": f"#/$defs/{n + 1}"}}}
            definitions[str(n)] = {keyword: [step, {**step, "maxProperties": 9}]}
        definitions["40"] = draw(sub_schemas)
    return {"properties": {name: {"$ref": "#/$defs/0"} for name in NAMES}, "$defs": definitions}


scalars: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from([1, "x", None, True, 2.5, {}, []]),
    st.sampled_from([10, 1_000, 100_000]).map(lambda n: "a" * n + "!"),
)


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    wide = st.builds(lambda value, times: [value] * times, inner, st.sampled_from([1, 3, 100, 3_000]))
    deep = st.builds(lambda value, name, depth: _chain(value, name, depth), inner, names, st.sampled_from([1, 7, 60]))
    return st.one_of(wide, deep, st.dictionaries(names, inner, max_size=3))


def _chain(value: Any, name: str, depth: int) -> Any:
    for _ in range(depth):
        value = {name: value}
    return value


def wire_bytes(value: Any, known: dict[int, int]) -> int:
    """At least as many bytes as the value takes as JSON. Repeated parts, which make up most of it, are counted once."""
    if not isinstance(value, dict | list):
        return len(str(value)) + 3
    if id(value) not in known:
        parts = [*value, *value.values()] if isinstance(value, dict) else value
        known[id(value)] = 2 + sum(wire_bytes(part, known) for part in parts)
    return known[id(value)]


def can_arrive(value: Any) -> bool:
    return wire_bytes(value, {}) <= BODY_BYTES


arguments = st.dictionaries(names, st.recursive(scalars, nested, max_leaves=4), min_size=1).filter(can_arrive)


def peak_kb(pid: int | str = "self") -> int:
    """The most memory the process has had since `forget_peak`."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def forget_peak() -> None:
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")


def cost(schema: Json, given_arguments: Json) -> tuple[float, int]:
    """CPU seconds and kilobytes of a first check, which compiles the schema."""
    forget_peak()
    tracer = sys.gettrace()
    sys.settrace(None)  # what a measurement of coverage costs is not the check's
    before_kb, before_s = peak_kb(), time.thread_time()
    try:
        deferred = ArgumentCheck("s:t", schema)(given_arguments)
        assert deferred is None or isinstance(deferred, DeferredCheck)
    except InvalidArgumentsError:
        pass
    spent_s = time.thread_time() - before_s
    grown_kb = peak_kb() - before_kb
    sys.settrace(tracer)
    return spent_s, grown_kb


@pytest.mark.no_cover
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="measures memory with /proc")
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), phases=WITHOUT_SHRINKING)
@given(schemas().filter(can_arrive), arguments)
def test_no_check_costs_the_event_loop_much(schema: Json, given_arguments: Json) -> None:
    spent_s, grown_kb = cost(schema, given_arguments)
    for _ in range(1, TRIES):
        if spent_s < CPU_S and grown_kb < MEMORY_KB:
            break
        again_s, again_kb = cost(schema, given_arguments)
        spent_s, grown_kb = min(spent_s, again_s), min(grown_kb, again_kb)
    assert spent_s < CPU_S
    assert grown_kb < MEMORY_KB


def child_cost(job: bytes) -> tuple[float, int]:
    """CPU seconds and kilobytes that one job costs a check process that is running already."""
    folder = str(Path(jsonschema_rs.__file__).parent.parent)
    program = (sys.executable, "-I", "-S", check_program.__file__, folder)
    child = subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={}, cwd="/"
    )
    assert child.stdin is not None
    assert child.stdout is not None
    with child.stdin, child.stdout:
        child.stdin.write(b'{"schema":{},"arguments":{}}\n')
        child.stdin.flush()
        assert child.stdout.readline() == b"valid\n"
        before_kb, before_s = peak_kb(child.pid), cpu_s(child.pid)
        with suppress(BrokenPipeError):
            child.stdin.write(job + b"\n")
            child.stdin.close()
        peak, spent_s = before_kb, before_s
        while child.poll() is None:  # `ru_maxrss` would be that of this process, from which it was forked
            with suppress(OSError, StopIteration):  # it has just ended
                peak, spent_s = peak_kb(child.pid), cpu_s(child.pid)
            time.sleep(0.001)
    return spent_s - before_s, peak - before_kb


def cpu_s(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="measures CPU time with /proc")
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), phases=WITHOUT_SHRINKING)
@given(schemas().filter(can_arrive), arguments)
def test_no_check_costs_the_check_process_much(schema: Json, given_arguments: Json) -> None:
    job = ArgumentCheck("s:t", schema).job(given_arguments)
    assume(job is not None)
    assert job is not None
    spent_s, grown_kb = child_cost(job)
    for _ in range(1, TRIES):
        if spent_s < CHILD_CPU_S and grown_kb < MEMORY_KB:
            break
        again_s, again_kb = child_cost(job)
        spent_s, grown_kb = min(spent_s, again_s), min(grown_kb, again_kb)
    assert spent_s < CHILD_CPU_S
    assert grown_kb < MEMORY_KB


def ladder(steps: int) -> Json:
    """Each definition names the next one twice, without a circle: two to the power of `steps` visits."""
    definitions: Json = {str(steps): {}}
    for n in range(steps):
        step = {"properties": {"a": {"$ref": f"#/$defs/{n + 1}"}}}
        definitions[str(n)] = {"allOf": [step, {**step, "maxProperties": 9}]}
    return {"$ref": "#/$defs/0", "$defs": definitions}


COSTLY = {
    "visits": (ladder(40), _chain({}, "a", 40)),
    "pattern": ({"properties": {"a": {"pattern": "(?=a)(a+)+$"}}}, {"a": "a" * 100_000 + "!"}),
    "patterns": ({"properties": {"a": {"items": {"pattern": r"^(a|a)*b\1"}}}}, {"a": ["a" * 30] * 3_000}),
    "enum": (
        {"properties": {"a": {"items": {"enum": [{"v": n} for n in range(3_000)]}}}},
        {"a": [{"v": 2_999}] * 10_000},
    ),
    "errors": (
        {"properties": {"a": {"allOf": [{"type": "integer", "maximum": n} for n in range(1_000)]}}},
        {"a": "x" * 100_000},
    ),
    "compilation": ({"properties": {f"p{n}": {"pattern": f"[^{n}]{{1000}}"} for n in range(500)}}, {"p1": "x"}),
}


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="measures CPU time with /proc")
@pytest.mark.parametrize("name", COSTLY)
async def test_the_check_process_is_ended_by_the_kernel(name: str) -> None:
    schema, given_arguments = COSTLY[name]
    deferred = ArgumentCheck("s:t", schema)(given_arguments)
    assert deferred is not None
    job = deferred.job()
    assert job is not None
    costs = [child_cost(job) for _ in range(TRIES)]
    assert min(spent_s for spent_s, _ in costs) < CHILD_CPU_S
    assert min(grown_kb for _, grown_kb in costs) < MEMORY_KB


async def test_a_check_that_is_cancelled_leaves_no_answer_for_the_next_one() -> None:
    process = CheckProcess()
    bad = ArgumentCheck("s:t", ladder(3) | {"required": ["z"]})
    good = ArgumentCheck("s:t", {"unevaluatedProperties": True})
    try:
        for _ in range(5):
            deferred = DeferredCheck(bad, {})
            task = asyncio.create_task(process.settle(deferred, "test"))
            await asyncio.sleep(0.001)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            fits = good({})
            assert fits is not None
            await process.settle(fits, "test")
    finally:
        await process.close()


async def test_closing_waits_for_a_process_that_a_cancelled_check_has_killed() -> None:
    process = CheckProcess()
    costly = DeferredCheck(ArgumentCheck("s:t", COSTLY["compilation"][0]), {"p1": "x"})
    before = children()
    task = asyncio.create_task(process.settle(costly, "test"))
    while children() == before:
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.05)  # it reads the job
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await process.close()
    assert children() == before


def children() -> set[str]:
    own = Path("/proc/self/task").iterdir()
    return {child for thread in own for child in (thread / "children").read_text().split()}


async def test_tokens_take_turns_at_the_check_process() -> None:
    process = CheckProcess()
    costly = ArgumentCheck("s:t", COSTLY["compilation"][0])
    cheap = ArgumentCheck("s:t", {"unevaluatedProperties": True})
    try:
        waiting = [asyncio.create_task(process.settle(DeferredCheck(costly, {"p1": "x"}), "anna")) for _ in range(5)]
        await asyncio.sleep(0)  # all of them ask before the other token does
        await process.settle(DeferredCheck(cheap, {}), "ben")
        assert sum(task.done() for task in waiting) <= 2, "the other token waited for the backlog of the first one"
        await asyncio.gather(*waiting)
    finally:
        await process.close()
