"""The official suite as a program: what it is given, and what it says."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[2] / ".foreign" / "conformance"
NODE = FOLDER / "node_modules" / "node" / "bin" / "node"  # of its own: it needs Node 22
PROGRAM = FOLDER / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
RUN_S = 300.0  # a bound against hanging; a run takes about ten seconds


@dataclass(frozen=True)
class Verdict:
    counts: Counter[str]  # by the suite's own words: SUCCESS, FAILURE, WARNING ...
    passed: frozenset[str]  # `scenario:check` with no failure among its occurrences
    complaints: Mapping[str, str]  # `scenario:check` and what the suite says of its failure
    content: bool  # nothing failed that was not expected to, and nothing passed that was
    log: str

    @property
    def summary(self) -> str:
        said = f"{self.counts['SUCCESS']} passed, {self.counts['FAILURE']} failed"
        return f"{said}, {self.counts['WARNING']} warned" if self.counts["WARNING"] else said


def missing() -> str | None:
    """Why the suite cannot run here."""
    return (
        None if NODE.exists() and PROGRAM.exists() else "the conformance suite is not installed (npm was not reached)"
    )


async def run(url: str, version: str, expected: Collection[str], folder: Path) -> Verdict:
    """Run all scenarios of one protocol version. `expected` names what may fail, as `scenario` or `scenario:check`."""
    folder.mkdir(parents=True)
    baseline = folder / "expected-failures.yml"
    baseline.write_text(json.dumps({"server": sorted(expected)}))  # JSON is YAML
    process = await asyncio.create_subprocess_exec(
        *(NODE, PROGRAM, "server", "--url", url, "--suite", "all", "--spec-version", version),
        *("--expected-failures", baseline, "--output-dir", folder),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        log, _ = await asyncio.wait_for(process.communicate(), RUN_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    checks = _checks(folder)
    complaints = {name: said for name, status, said in checks if status in ("FAILURE", "WARNING")}
    return Verdict(
        counts=Counter(status for _, status, _ in checks),
        passed=frozenset(name for name, status, _ in checks if status == "SUCCESS" and name not in complaints),
        complaints=complaints,
        content=process.returncode == 0 and bool(checks),
        log=log.decode(errors="replace"),
    )


def _checks(folder: Path) -> list[tuple[str, str, str]]:
    """`scenario:check`, status and message of every check that the suite wrote down."""
    found = []
    for file in sorted(folder.glob("server-*/checks.json")):
        scenario = file.parent.name.removeprefix("server-").rsplit("-", 6)[0]  # without the moment of the run
        for check in json.loads(file.read_text()):
            found.append((f"{scenario}:{check['id']}", check["status"], check.get("errorMessage") or ""))
    return found
