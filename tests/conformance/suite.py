"""The official suite as a program: what it is given, and what it says."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ruamel.yaml import YAML

from tests.program import run_program

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".foreign" / "conformance"
NODE = FOLDER / "node_modules" / "node" / "bin" / "node"  # of its own: it needs Node 22
PROGRAM = FOLDER / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
REQUIREMENTS = PROGRAM.parents[1] / "requirements"
CLIENT_MS = "120000"  # a bound against hanging; the client starts a whole gateway
RUN_S = 300.0  # a bound against hanging; a run takes about ten seconds


Role = Literal["server", "client"]
Slots = asyncio.Semaphore  # how many of a kind run at the same time


@dataclass(frozen=True)
class Requirements:
    """What a revision of the protocol requires of a role, frozen at its release."""

    required: tuple[str, ...]
    beside: tuple[str, ...]  # also run: scenarios that are newer, or that the suite's own server does not pass
    extensions: frozenset[str]  # also run, for extensions that nobody has to support


@dataclass(frozen=True)
class Verdict:
    counts: Counter[str]  # by the suite's own words: SUCCESS, FAILURE, WARNING ...
    passed: frozenset[str]  # `scenario:check` with no failure among its occurrences
    skipped: frozenset[str]  # `scenario:check` that was not applied
    complaints: Mapping[str, str]  # `scenario:check` and what the suite says of its failure
    content: bool  # nothing failed that was not expected to, and nothing passed that was
    log: str

    @property
    def summary(self) -> str:
        said = f"{self.counts['SUCCESS']} passed, {self.counts['FAILURE']} failed"
        return f"{said}, {self.counts['WARNING']} warned" if self.counts["WARNING"] else said

    @property
    def passed_scenarios(self) -> frozenset[str]:
        """Those in which something passed and nothing else was said."""
        return frozenset(map(scenario_of, self.passed)) - frozenset(map(scenario_of, self.complaints))


def scenario_of(check: str) -> str:
    return check.partition(":")[0]


def missing() -> str | None:
    """Why the suite cannot run here."""
    return (
        None if NODE.exists() and PROGRAM.exists() else "the conformance suite is not installed (npm was not reached)"
    )


def requirements(version: str, role: Role) -> Requirements:
    found: dict[str, Any] = YAML(typ="safe").load(REQUIREMENTS / f"{version}.yaml")
    others = [entry for entry in found["not_scored"] if entry["leg"] == role]
    extensions = frozenset(entry["scenario"] for entry in others if entry["reason"] == "extension")
    beside = tuple(entry["scenario"] for entry in others if entry["scenario"] not in extensions)
    return Requirements(tuple(found[role]), beside, extensions)


async def run(url: str, version: str, expected: Collection[str], folder: Path) -> Verdict:
    """Test a server in all scenarios that a revision requires, and in those beside them.

    `expected` names what may fail, as `scenario` or `scenario:check`; the suite itself refuses an entry of a required
    scenario that passes.
    """
    folder.mkdir(parents=True)
    baseline = folder / "expected-failures.yml"
    baseline.write_text(json.dumps({"server": sorted(expected)}))  # JSON is YAML
    options = ("--url", url, "--requirements", version, "--expected-failures", baseline)
    code, log = await _execute("server", *options, "--output-dir", folder)
    return read_verdict(folder, log, content=code == 0, without=requirements(version, "server").extensions)


async def run_scenarios(url: str, scenarios: Sequence[str], version: str, folder: Path) -> Verdict:
    """Test a server in scenarios of an extension, which no set of a protocol version has."""
    log = ""
    for scenario in scenarios:
        options = ("--url", url, "--scenario", scenario, "--spec-version", version, "--force")
        log += (await _execute("server", *options, "--output-dir", folder))[1]
    return read_verdict(folder, log, content=True)


async def run_client(command: str, scenarios: Sequence[str], version: str, folder: Path, slots: Slots) -> Verdict:
    """Test a client that `command` starts. Each scenario starts a whole gateway, and takes one of the slots."""

    async def run_one(scenario: str) -> str:
        options = ("--command", command, "--scenario", scenario, "--spec-version", version, "--force")
        async with slots:
            return (await _execute("client", *options, "--timeout", CLIENT_MS, "--output-dir", folder))[1]

    logs = await asyncio.gather(*map(run_one, scenarios))
    return read_verdict(folder, "".join(logs), content=True)


async def _execute(*options: str | Path) -> tuple[int, str]:
    ended = await run_program(NODE, PROGRAM, *options, cwd=ROOT, limit_s=RUN_S, merged=True)
    return ended.code, ended.out


def read_verdict(folder: Path, log: str, content: bool, without: Collection[str] = ()) -> Verdict:
    """`without` are scenarios that do not count."""
    checks = [check for check in _checks(folder) if scenario_of(check[0]) not in without]
    complaints = {name: said for name, status, said in checks if status in ("FAILURE", "WARNING")}
    return Verdict(
        counts=Counter(status for _, status, _ in checks),
        passed=frozenset(name for name, status, _ in checks if status == "SUCCESS" and name not in complaints),
        skipped=frozenset(name for name, status, _ in checks if status == "SKIPPED"),
        complaints=complaints,
        content=content and bool(checks),
        log=log,
    )


def _checks(folder: Path) -> list[tuple[str, str, str]]:
    """`scenario:check`, status and message of every check that the suite wrote down."""
    found = []
    for file in sorted(folder.rglob("checks.json")):  # a scenario such as `auth/iss-supported` has a folder in a folder
        scenario = (
            str(file.parent.relative_to(folder)).removeprefix("server-").rsplit("-", 6)[0]
        )  # without the moment of the run
        for check in json.loads(file.read_text()):
            found.append((f"{scenario}:{check['id']}", check["status"], check.get("errorMessage") or ""))
    return found
