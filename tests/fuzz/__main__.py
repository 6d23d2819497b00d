"""Fuzz all readers for FUZZ_SECONDS in total: with atheris where it is installed, which follows the code's branches,
and with hypothesis otherwise, which changes well-formed input. Exit code 1: an input broke a reader, and is printed.

    python -m tests.fuzz [TARGET...]
"""

from __future__ import annotations

import importlib.util
import logging
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisWarning

from tests.fuzz import MAX_BYTES
from tests.fuzz.targets import TARGETS, Target, within_bounds

SECONDS = float(os.environ.get("FUZZ_SECONDS", "60"))
_BATCH = 50
_WORD = -1  # in place of a number of bytes
_A_WORD = re.compile(rb'"[^"]*"|[^\s,:{}\[\]"]+')


def main(names: list[str]) -> int:
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore", HypothesisWarning)  # of large values in its reports
    chosen = names or list(TARGETS)
    following = importlib.util.find_spec("atheris") is not None
    print(f"fuzzing with {'atheris' if following else 'hypothesis'}: {SECONDS:g} s for {', '.join(chosen)}", flush=True)
    broken = [name for name in chosen if not (_followed if following else _changed)(name, SECONDS / len(chosen))]
    print(f"broken: {', '.join(broken)}" if broken else "no reader broke", flush=True)
    return 1 if broken else 0


def _changed(name: str, seconds: float) -> bool:
    """With hypothesis, in batches until the time is over."""
    target, deadline, count, batch = TARGETS[name], time.monotonic() + seconds, 0, random.getrandbits(64)

    @settings(
        max_examples=_BATCH, deadline=None, database=None, suppress_health_check=list(HealthCheck), phases=_PHASES
    )
    @given(_inputs(target))
    def holds(data: bytes) -> None:
        nonlocal count
        count += 1
        within_bounds(target, data)

    while time.monotonic() < deadline:
        batch += 1
        try:
            seed(batch)(holds)()
        except Exception as error:
            print(f"{name}: broken after {count} inputs: {error!r}", *getattr(error, "__notes__", ()), sep="\n")
            return False
    print(f"{name}: {count} inputs", flush=True)
    return True


_PHASES = (Phase.generate, Phase.shrink)


def _inputs(target: Target) -> st.SearchStrategy[bytes]:
    place = st.floats(0, 1)
    value = st.tuples(place, st.just(_WORD), st.sampled_from(target.values), st.just(1))
    pieces = st.one_of(st.sampled_from(target.syntax), st.binary(max_size=8))
    anything = st.tuples(place, st.sampled_from([_WORD, 0, 0, 1, 5, 100]), pieces, st.sampled_from([1, 1, 1, 2, 40]))
    few = st.lists(value, min_size=1, max_size=2)
    many = st.lists(st.one_of(value, anything), min_size=1, max_size=10)
    return st.builds(_edited, st.sampled_from(target.seeds), st.one_of(few, many))


def _edited(data: bytes, edits: list[tuple[float, int, bytes, int]]) -> bytes:
    """Each edit replaces some bytes, or the word, at a place by a piece, once or repeatedly."""
    for place, removed, piece, times in edits:
        start = end = int(place * len(data))
        if removed == _WORD and (word := _A_WORD.search(data, start)):
            start, end = word.span()
        elif removed != _WORD:
            end = start + removed
        data = (data[:start] + piece * times + data[end:])[:MAX_BYTES]
    return data


def _followed(name: str, seconds: float) -> bool:
    """With atheris, in a process of its own, which atheris ends itself."""
    with tempfile.TemporaryDirectory() as corpus:
        for number, data in enumerate(TARGETS[name].seeds):
            (Path(corpus) / f"seed{number}").write_bytes(data)
        command = [sys.executable, "-m", "tests.fuzz.follow", name, str(seconds), corpus]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stderr.splitlines()
    said = lines[-1:] if done.returncode == 0 else [*done.stdout.splitlines()[-15:], *lines[-15:]]
    print(f"{name}:", *said, sep="\n  ", flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
