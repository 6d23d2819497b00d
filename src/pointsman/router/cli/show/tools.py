"""`pointsman tools`: list, search and call the tools behind the gateway, as its owner."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from pointsman.core.escape import escaped
from pointsman.router.cli.common import replay
from pointsman.router.cli.common.options import (
    CommandError,
    ConfigCommandError,
    json_option,
    note,
    report_config_errors,
    state_dir_option,
)
from pointsman.router.cli.common.output import echo, paint, print_json
from pointsman.router.cli.common.owner import ask_gateway, complete, owned_folder, plural, progress
from pointsman.router.cli.show.audit import Moment, report_read_errors
from pointsman.router.owner.search.kept_cases import EXAMPLE, USUAL_FILE, Case, KeptCasesError, add_ranks, read_kept

MAX_DESCRIPTION = 100
CALL_S = 86_400.0  # the gateway limits a call by `timeouts.call_s`
BATCH = 50  # requests that the gateway ranks at once
REPLAY_S = 310.0
PROVIDERS = ("bm25", "bm25+static", "bm25+static+minilm", "cloud")


@click.group()
def tools() -> None:
    """List, search and call the tools behind the gateway, as its owner."""


@tools.command(name="list")
@click.option("--server", "server_id", help="Only tools of this server.", shell_complete=complete("servers"))
@state_dir_option
@json_option
def list_tools(server_id: str | None, state_dir: Path | None, as_json: bool) -> None:
    """List the tools of all running servers."""
    with progress("Asking the servers ..."):
        answer = ask_gateway(state_dir, "tools", server=server_id)
    if as_json:
        print_json(answer)
        return
    for tool in answer["tools"]:
        off = "" if tool["allowed"] else paint(" (switched off by tool_permissions)", "yellow")
        echo(f"{escaped(tool['toolKey'])}{off}")
        if text := _first_sentence(tool.get("description")):
            echo(f"    {text}")
    for missing, reason in answer["missing"].items():
        note(f"Server `{missing}` is missing: {escaped(reason or 'it gave no list in time')}.")
    note(plural(len(answer["tools"]), "tool") + ".")


@tools.command()
@click.argument("query", nargs=-1, required=True)
@click.option(
    "--project", "project_id", help="Rank as for callers of this project.", shell_complete=complete("projects")
)
@click.option("-n", "count", type=click.IntRange(1, 100), default=10, show_default=True, help="Number of results.")
@click.option(
    "--also",
    multiple=True,
    metavar="QUERY",
    help="A further query, as a model that needs several tools sends. Repeatable.",
)
@state_dir_option
@json_option
def search(
    query: tuple[str, ...],
    project_id: str | None,
    count: int,
    also: tuple[str, ...],
    state_dir: Path | None,
    as_json: bool,
) -> None:
    """Search as a model does with tool_discovery, over all servers. All words are one query, with or without quotes."""
    queries = [" ".join(query), *also]
    answer = ask_gateway(state_dir, "search", queries=queries, project=project_id, maxResults=count)
    found = answer.get("structuredContent", {})
    if as_json:
        print_json(found)
    else:
        for result in found.get("results", []):
            intents = "; ".join(queries[place] for place in result.get("intents", ()))
            served = f"  (for: {escaped(intents)})" if intents else ""
            echo(f"{result['relevance']:.2f}  {escaped(result['toolKey'])}{served}")
            if text := _first_sentence(result.get("description")):
                echo(f"      {text}")
        if notice := found.get("notice"):
            note(notice)
        if error := found.get("error"):
            note(error["message"])
    if answer.get("isError"):
        sys.exit(1)


@tools.command()
@click.argument("tool_key", metavar="TOOL", shell_complete=complete("tools"))
@click.argument("arguments", nargs=-1, metavar="[NAME=VALUE]... | JSON | -")
@state_dir_option
@json_option
def call(tool_key: str, arguments: tuple[str, ...], state_dir: Path | None, as_json: bool) -> None:
    """Call TOOL (server:tool). The call is validated and audited like any other, with the token `@owner`.

    \b
    pointsman tools call time:get_current_time timezone=Europe/Berlin
    pointsman tools call time:get_current_time '{"timezone": "Europe/Berlin"}'

    A VALUE that is JSON (true, 5, [1, 2], {...}) is sent as such, unless the tool takes only text there; any other is
    sent as text. `-` reads JSON from stdin.
    """
    given, words = _arguments(arguments)
    with progress(f"Calling `{tool_key}` ..."):
        result = ask_gateway(state_dir, "call", timeout_s=CALL_S, tool=tool_key, arguments=given, words=words)
    if as_json:
        print_json(result)
    else:
        _print_content(result)
    if result.get("isError"):
        sys.exit(1)


@tools.command(name="test")
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@click.option("--audit", is_flag=True, help="Replay the discoveries of the audit log instead of a file.")
@click.option(
    "--since", "since_ms", type=Moment(), help="With --audit, only discoveries since this time, such as 7d or 12h."
)
@click.option(
    "-n", "count", type=click.IntRange(1, 10_000), default=500, show_default=True, help="With --audit, the latest N."
)
@click.option(
    "--provider",
    "providers",
    multiple=True,
    type=click.Choice(PROVIDERS),
    help="Rank by this search as well, beside the one in use. `cloud` sends the requests to the search service.",
)
@click.option(
    "--before", type=click.Path(path_type=Path, dir_okay=False), help="Compare with what --json printed earlier."
)
@state_dir_option
@json_option
@report_read_errors
def test_search(
    file: Path | None,
    audit: bool,
    since_ms: int | None,
    count: int,
    providers: tuple[str, ...],
    before: Path | None,
    state_dir: Path | None,
    as_json: bool,
) -> None:
    """Rank kept requests again, and say which no longer find their tool: exit code 1 if one misses its worst_rank.

    FILE is by default pointsman.queries.yaml beside the configuration, a list of requests; - reads stdin:

    \b
    - {query: read a text file, expected: files:read_file, worst_rank: 3}

    With --audit, the requests are those of the audit log, and what their caller executed next, within five minutes, is
    expected. It has no worst_rank, so that the exit code is 0 whatever is found. Compare searches with --provider, and
    before and after a change with --json and --before.
    """
    if audit and file is not None:
        raise ConfigCommandError("Give either FILE or --audit.")
    if since_ms is not None and not audit:
        raise ConfigCommandError("--since needs --audit: requests that are kept in a file have no time.")
    if not audit and click.get_current_context().get_parameter_source("count") is ParameterSource.COMMANDLINE:
        raise ConfigCommandError("-n needs --audit: the requests of a file are all ranked.")
    earlier = replay.read_earlier(before) if before is not None else None
    cases = _audited(state_dir, since_ms, count) if audit else _kept(file, state_dir)
    unknown: dict[str, str | None] = {}  # expected tools that no server has, with the nearest that there is
    with progress(f"Ranking {plural(len(cases), 'request')} ..."):
        for start in range(0, len(cases), BATCH):
            batch = cases[start : start + BATCH]
            asked = {"cases": [case.asked() for case in batch], "providers": list(dict.fromkeys(providers))}
            answer = ask_gateway(state_dir, "replay", timeout_s=REPLAY_S, **asked)
            add_ranks(batch, answer["cases"], answer.get("away"))
            unknown |= {key: answer.get("nearest", {}).get(key) for key in answer.get("unknown", ())}
    if earlier is not None:
        replay.add_earlier(cases, earlier)
    if as_json:
        summary = replay.summarize(cases)
        print_json({"cases": [case.shown() for case in cases], "summary": summary, "unknown": sorted(unknown)})
    elif cases:
        _print_replay(cases, audit)
    for key, near in sorted(unknown.items())[: replay.MAX_CHANGES]:
        step = f" Did you mean `{escaped(near)}`?" if near else ""
        note(f"No server has the tool `{escaped(key)}`, which is expected.{step}")
    missed = sum(case.missed for case in cases)
    if missed:
        note(f"{plural(missed, 'request')} of {len(cases)} missed.")
        sys.exit(1)


def _kept(file: Path | None, state_dir: Path | None) -> list[Case]:
    if file is None:
        about = ask_gateway(state_dir, "about")
        file = Path(about["configuration"]).with_name(USUAL_FILE)
    try:
        cases = read_kept(file, ask_gateway(state_dir, "names")["projects"])
    except KeptCasesError as error:
        raise ConfigCommandError(*error.lines) from None
    if not cases:
        note(f"{escaped(str(file))} has no requests yet. Write one per entry, such as:\n  {EXAMPLE}")
    return cases


def _audited(state_dir: Path | None, since_ms: int | None, count: int) -> list[Case]:
    from pointsman.config.settings import read_settings
    from pointsman.router.audit.choices import read_choices
    from pointsman.router.cli.common.audit_source import audit_of

    with report_config_errors():
        source = audit_of(owned_folder(state_dir), read_settings())
    choices = read_choices(source, since_ms, count)
    if not choices:
        raise ConfigCommandError(
            "The audit log has no discovery that was followed by a successful call of the same caller within five "
            "minutes. Use the gateway for a while, or keep requests in a file."
        )
    return [
        Case(list(one.queries), one.tool_keys, project=one.project, token=one.token, cut=one.cut) for one in choices
    ]


def _print_replay(cases: Sequence[Case], audit: bool) -> None:
    shown = replay.changed_or_far(cases) if audit else cases
    left_out = len(shown) - replay.MAX_CHANGES if audit else 0
    shown = shown[: replay.MAX_CHANGES] if audit else shown
    if shown:
        for line in replay.case_lines(shown):
            echo(line)
        if left_out > 0:
            note(f"And {plural(left_out, 'request')} more; --json lists all.")
        echo()
    for line in replay.summary_lines(cases):
        echo(line)
    gone = sum(not case.ranks for case in cases)
    if gone:
        note(f"{plural(gone, 'request')} left out: the project no longer exists.")
    _note_new(cases)
    cut = sum(case.cut for case in cases)
    if cut:
        note(f"Ranked only by the part that the audit keeps (500 characters a query): {plural(cut, 'request')}.")
    for name in dict.fromkeys(name for case in cases for name in case.replaced):
        count = sum(name in case.replaced for case in cases)
        note(f"`{name}` did not answer {plural(count, 'request')}; those ranks are of another search.")


def _note_new(cases: Sequence[Case]) -> None:
    """Say which requests an earlier run did not have, and so for what the summary stands."""
    new = sum(case.new for case in cases)
    if new == len(cases):
        note("The earlier run has none of these requests, so there is nothing to compare.")
    elif new:
        note(f"Not in the earlier run: {plural(new, 'request')}; the summary counts the others.")


def _arguments(given: Sequence[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the arguments, and those given as NAME=VALUE also as they were typed."""
    if len(given) == 1 and (given[0] == "-" or given[0].lstrip().startswith("{")):
        text = sys.stdin.buffer.read() if given[0] == "-" else given[0]
        try:
            value = json.loads(text)
        except UnicodeDecodeError:
            raise ConfigCommandError("The arguments are not UTF-8 text.") from None
        except ValueError as error:
            raise ConfigCommandError(f"The arguments are not JSON: {error}.") from None
        except RecursionError:
            raise ConfigCommandError("The arguments are nested too deeply.") from None
        if not isinstance(value, dict):
            raise ConfigCommandError('The arguments must be a JSON object, such as {"timezone": "UTC"}.')
        return value, {}
    words = dict(_pair(each) for each in given)
    return {name: _value(word) for name, word in words.items()}, words


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigCommandError(f"`{text[:60]}` is neither NAME=VALUE nor a JSON object.")
    return name, value


def _value(word: str) -> Any:
    try:
        return json.loads(word, parse_constant=_no_json)
    except (ValueError, RecursionError):
        return word


def _no_json(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _print_content(result: dict[str, Any]) -> None:
    failed = bool(result.get("isError"))
    if result.get("resultType") == "input_required":
        raise CommandError("The tool asks its user something, which only a client can answer.")
    for block in result.get("content", []):
        if block.get("type") == "text":
            text = block["text"]
            echo(escaped(text) if _error_code(result) == "unknown_tool" else text, err=failed)  # that quotes the key
        else:
            note(f"({escaped(str(block.get('type', 'unknown')))} content is not shown; --json has it)")


def _error_code(result: dict[str, Any]) -> str | None:
    content = result.get("structuredContent")
    error = content.get("error") if isinstance(content, dict) else None
    return error.get("code") if isinstance(error, dict) else None


def _first_sentence(text: Any) -> str:
    if not isinstance(text, str):
        return ""
    line = " ".join(text.split())
    return line if len(line) <= MAX_DESCRIPTION else line[: MAX_DESCRIPTION - 1] + "…"
