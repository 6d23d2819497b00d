"""Checks arguments against schemas of unknown cost, in a separate process that can be killed.

Run as `python -I -S check_program.py FOLDER`, where FOLDER holds the package jsonschema_rs. Standard input has one job
a line, a JSON object with `schema` and `arguments`; the answer is one line, `valid`, `unusable <reason>` or `invalid`,
and after `invalid` a second one with the problems. The kernel ends the process when a job takes more than CPU_S of CPU
or the process more than MEMORY_BYTES: no code of ours can interrupt the validator.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
from collections.abc import Iterator
from typing import Any

CPU_S = 0.04  # the kernel counts by ticks of some ms: 50 ms at most, on a busy machine up to twice that
MEMORY_BYTES = 18 * 2**20  # of new addresses; with what is mapped already: 20 MB at most
IDLE_S = 60.0
MAX_PROBLEMS = 5
MAX_PROBLEM_CHARS = 240


def main() -> None:
    import json

    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)  # it ends with its standard input
    list(_answer(b'{"schema":{"required":["a"]},"arguments":{}}', json))  # load all modules before the limit applies
    _limit_memory()
    while select.select([sys.stdin.buffer], [], [], IDLE_S)[0] and (line := sys.stdin.buffer.readline()):
        signal.setitimer(signal.ITIMER_PROF, CPU_S)  # SIGPROF ends the process
        for answer in _answer(line, json):
            os.write(1, answer.encode("utf-8", "replace") + b"\n")
        signal.setitimer(signal.ITIMER_PROF, 0)


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        with open("/proc/self/statm", "rb") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
    except OSError:  # not Linux: only the CPU limit bounds the memory
        return
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY_BYTES, now + MEMORY_BYTES))


def _answer(line: bytes, json: Any) -> Iterator[str]:
    from jsonschema_rs import validator_for

    try:
        job = json.loads(line)
        validator = validator_for(job["schema"], offline=True)  # an external `$ref` is an error and is never fetched
    except (ValueError, RecursionError) as error:
        yield "unusable " + shortened(getattr(error, "message", str(error))).replace("\n", " ")
        return
    if validator.is_valid(job["arguments"]):
        yield "valid"
        return
    yield "invalid"
    yield json.dumps(problems(validator, job["arguments"]))


def problems(validator: Any, arguments: Any) -> list[str]:
    """The first few errors, each with its position. The validator collects all of them before it yields the first."""
    errors = []
    for error in validator.iter_errors(arguments):
        errors.append(error)
        if len(errors) > MAX_PROBLEMS:
            break
    listed = [f"`{_path(error.instance_path)}`: {shortened(error.message)}" for error in errors[:MAX_PROBLEMS]]
    return [*listed, "and more"] if len(errors) > MAX_PROBLEMS else listed


def _path(steps: list[str | int]) -> str:
    """`filter.ids[3]`; `arguments` for the arguments as a whole."""
    path = ""
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return shortened(path) or "arguments"


def shortened(text: str) -> str:
    """Keep head and tail: a message has the value first and the reason last."""
    if len(text) <= MAX_PROBLEM_CHARS:
        return text
    half = MAX_PROBLEM_CHARS // 2
    return f"{text[:half]} ... {text[-half:]}"


if __name__ == "__main__":
    sys.path.append(sys.argv[1])
    main()
