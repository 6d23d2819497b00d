"""Run the official conformance suite over everything: `python -m tests.conformance [PATTERN ...]`.

The gate is what each revision of the protocol requires (`--requirements` of the suite), with the scenarios beside it
that are no extension. First the fixture alone, which must pass everything. Then every gateway in front of it: what the
fixture passes alone must pass through the gateway too, or stand in `expected-failures.yml` with the reason; each
required scenario must pass a check. Then the other side: the suite's mock servers behind a gateway, which is their
client. Last the scenarios of the skills extension, which are in no set of requirements. They pass with the suite for a
program that knows no skills, with nothing checked: here each of them must pass a check, and none may skip one. And the
two scenarios for authorization servers, against the gateway's own.
Patterns choose runs by name, `'flat legacy own *'` for example.

The runs mostly wait, so some run at the same time; their lines come in the same order each time.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal

from tests.conformance import authorization, suite
from tests.conformance.expected_failures import expected
from tests.conformance.suite import Slots
from tests.conformance.targets import DownstreamEra, Surface, fixture, own_front, sdk_front

VERSIONS = ("2025-11-25", "2026-07-28")
Which = Literal["own", "sdk"]
# Of the extensions for clients: the gateway signs in to servers with client credentials.
CLIENT_EXTENSIONS = ("auth/client-credentials-basic", "auth/client-credentials-jwt")
SKILL_SCENARIOS = ("sep-2640-skills-enumeration", "sep-2640-skills-directory", "sep-2640-skills-manifest")
SKILL_CLIENT_SCENARIOS = (
    "sep-2640-client-no-prefetch",
    "sep-2640-client-verify-digest",
    "sep-2640-client-verify-size",
    "sep-2640-client-verify-frontmatter",
)
AUTHORIZATION = "authorization server"
CLIENT = f"{sys.executable} -m tests.conformance.downstream_client"
AT_ONCE = 2  # runs, and scenarios of clients, each of which starts a gateway
# The one reason to skip a check that counts: the protocol version has no such fields.
NOT_IN_LEGACY = frozenset(
    f"sep-2640-skills-enumeration:sep-2640-skills-{method}-cache-attributes" for method in ("list", "get")
)


@dataclass(frozen=True)
class Run:
    surface: Surface
    era: DownstreamEra
    front: Which
    version: str

    @property
    def name(self) -> str:
        return f"{self.surface} {self.era} {self.front} {self.version}"

    def target(self, fixture_url: str, folder: Path) -> AbstractAsyncContextManager[str]:
        serve = own_front if self.front == "own" else sdk_front
        return serve(self.surface, self.era, fixture_url, folder)


def runs() -> Iterator[Run]:
    cells: tuple[tuple[Surface, DownstreamEra], ...] = (
        ("router", "modern"),
        ("flat", "modern"),
        ("flat", "legacy"),
    )
    fronts: tuple[Which, ...] = ("own", "sdk")
    for surface, era in cells:
        for front in fronts:
            for version in VERSIONS:
                yield Run(surface, era, front, version)


def skill_runs() -> list[Run]:
    """Of a modern server only: the SDK's server, which the fixture is, declares no extension to a legacy client."""
    return [run for run in runs() if run.front == "own" and run.era == "modern"]


def names() -> list[str]:
    clients = [f"{kind} {version}" for kind in ("client", "skills client") for version in VERSIONS]
    servers = [f"{AUTHORIZATION} {version}" for version in VERSIONS]
    return [*(run.name for run in runs()), *(f"skills {run.name}" for run in skill_runs()), *clients, *servers]


@dataclass(frozen=True)
class Report:
    good: bool
    lines: Sequence[str]


Judgement = Coroutine[Any, Any, Report]


async def main(patterns: Sequence[str]) -> int:
    reason = suite.missing()
    if reason is not None:
        print(f"conformance: skipped, {reason}")
        return 0
    chosen = {name for name in names() if not patterns or any(fnmatch(name, pattern) for pattern in patterns)}
    slots = asyncio.Semaphore(AT_ONCE)
    with tempfile.TemporaryDirectory(prefix="conformance-") as temporary:
        folder = Path(temporary)
        alone = await _verdicts_alone(slots, folder)
        if not await print_in_order([_judge_alone(version, verdict) for version, verdict in alone.items()]):
            return 1
        judgements: list[Judgement] = [
            *(_judge(run, alone[run.version], folder, slots) for run in runs() if run.name in chosen),
            *_by_version("client", _judge_as_client, chosen, folder, slots),
            *(_judge_skills(run, folder, slots) for run in skill_runs() if f"skills {run.name}" in chosen),
            *_by_version("skills client", _judge_skills_as_client, chosen, folder, slots),
        ]
        good = await print_in_order(judgements)
        good &= await print_in_order(_by_version(AUTHORIZATION, _judge_authorization, chosen, folder, Slots(1)))
        return 0 if good else 1


async def print_in_order(judgements: Sequence[Judgement]) -> bool:
    """Run all of them, print each report once those before it are printed, and return whether all are good."""
    good = True
    async with asyncio.TaskGroup() as group:
        for task in [group.create_task(judgement) for judgement in judgements]:
            report = await task
            print("\n".join(report.lines), flush=True)
            good = good and report.good
    return good


async def _verdicts_alone(slots: Slots, folder: Path) -> dict[str, suite.Verdict]:
    """What the fixture passes by itself, for each revision of the protocol."""

    async def run(version: str) -> suite.Verdict:
        async with slots, fixture() as url:
            return await suite.run(url, version, (), folder / f"alone {version}")

    return dict(zip(VERSIONS, await asyncio.gather(*map(run, VERSIONS)), strict=True))


async def _judge_alone(version: str, alone: suite.Verdict) -> Report:
    required = suite.requirements(version, "server").required
    return report_on(f"fixture alone {version}", alone, silent(alone, required), (), required)


def _by_version(
    kind: str, judge: Callable[[str, Path, Slots], Judgement], chosen: Collection[str], folder: Path, slots: Slots
) -> list[Judgement]:
    """What does not depend on a front: once for each revision of the protocol."""
    wanted = [version for version in VERSIONS if f"{kind} {version}" in chosen]
    return [judge(version, folder / f"{kind.replace(' ', '-')}-{version}", slots) for version in wanted]


async def _judge_authorization(version: str, folder: Path, slots: Slots) -> Report:
    async with slots:
        verdict = await authorization.run(version, folder)
    must_pass = unchecked(verdict, authorization.SCENARIOS, version)
    return report_on(f"{AUTHORIZATION} {version}", verdict, must_pass, (), authorization.SCENARIOS)


async def _judge(run: Run, alone: suite.Verdict, folder: Path, slots: Slots) -> Report:
    """A fixture of its own for every run: what one run changes must not reach the next."""
    own_folder = folder / run.name.replace(" ", "-")
    own_folder.mkdir()
    known = expected(run.name)
    async with slots, fixture() as fixture_url, run.target(fixture_url, own_folder) as url:
        verdict = await suite.run(url, run.version, known, own_folder / "out")
    required = suite.requirements(run.version, "server").required
    return report_on(run.name, verdict, {*alone.passed, *silent(verdict, required)}, known, required)


async def _judge_as_client(version: str, folder: Path, slots: Slots) -> Report:
    wanted = suite.requirements(version, "client")
    scenarios = [*wanted.required, *wanted.beside, *(one for one in wanted.extensions if one in CLIENT_EXTENSIONS)]
    verdict = await suite.run_client(CLIENT, scenarios, version, folder, slots)
    known = expected(f"client {version}")
    return report_on(f"client {version}", verdict, silent(verdict, scenarios), known, wanted.required)


async def _judge_skills(run: Run, folder: Path, slots: Slots) -> Report:
    own_folder = folder / f"skills-{run.name.replace(' ', '-')}"
    own_folder.mkdir()
    async with slots, fixture() as fixture_url, run.target(fixture_url, own_folder) as url:
        verdict = await suite.run_scenarios(url, SKILL_SCENARIOS, run.version, own_folder / "out")
    return report_on(f"skills {run.name}", verdict, unchecked(verdict, SKILL_SCENARIOS, run.version), ())


async def _judge_skills_as_client(version: str, folder: Path, slots: Slots) -> Report:
    verdict = await suite.run_client(CLIENT, SKILL_CLIENT_SCENARIOS, version, folder, slots)
    return report_on(f"skills client {version}", verdict, unchecked(verdict, SKILL_CLIENT_SCENARIOS, version), ())


def unchecked(verdict: suite.Verdict, scenarios: Sequence[str], version: str) -> list[str]:
    """What the suite takes for a pass and is none: a scenario in which nothing passed, and a check that was skipped."""
    allowed = NOT_IN_LEGACY if version == "2025-11-25" else frozenset()
    return silent(verdict, scenarios) + sorted(verdict.skipped - allowed)


def silent(verdict: suite.Verdict, scenarios: Sequence[str]) -> list[str]:
    """The scenarios in which nothing passed."""
    reached = {suite.scenario_of(check) for check in verdict.passed}
    return [f"{scenario}:every check" for scenario in scenarios if scenario not in reached]


def outdated(verdict: suite.Verdict, known: Collection[str]) -> list[str]:
    """Expected failures that pass. The suite looks for them among the required scenarios only."""
    return sorted(name for name in known if name in verdict.passed or name in verdict.passed_scenarios)


def report_on(
    name: str,
    verdict: suite.Verdict,
    must_pass: Collection[str],
    known: Collection[str],
    required: Collection[str] = (),
) -> Report:
    """`known` are scenarios or checks; what must pass and does not, without being known, is a fault."""

    def is_known(check: str) -> bool:
        return check in known or suite.scenario_of(check) in known

    lost = {check for check in must_pass if check not in verdict.passed and not is_known(check)}
    lost |= {check for check in verdict.complaints if not is_known(check)}
    passing = outdated(verdict, known)
    good = verdict.content and not lost and not passing
    explained = ", all explained" if good and verdict.complaints else ""
    scored = f"{len(verdict.passed_scenarios & {*required}):2} of {len(required)} required, " if required else ""
    lines = [f"{'ok  ' if good else 'FAIL'} {name:35} {scored}checks: {verdict.summary}{explained}"]
    lines += [f"       {check}: {verdict.complaints.get(check, 'not reached')}" for check in sorted(lost)]
    lines += [f"       {check}: passes, so take it out of expected-failures.yml" for check in passing]
    if not good and not lost and not passing:
        lines.append(verdict.log[verdict.log.find("=== SUMMARY") :])  # an entry that passes, or no run at all
    return Report(good, lines)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
