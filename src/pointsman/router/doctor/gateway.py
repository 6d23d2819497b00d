"""Checks of the running gateway as its owner sees it: its health, its servers, and the clients it refused."""

from __future__ import annotations

import dataclasses
import re
import socket
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pointsman.catalog.scan.definition_watch import counted
from pointsman.core.errors import (
    TOKEN_AUDIENCE,
    TOKEN_EXPIRED,
    TOKEN_ISSUER,
    TOKEN_SIGNATURE,
    UNKNOWN_HOST,
    UNKNOWN_ORIGIN,
    UNKNOWN_REPLICA,
)
from pointsman.core.model import NEEDS_SIGN_IN
from pointsman.router.audit.kept import READ_ERRORS
from pointsman.router.audit.query import Filter
from pointsman.router.audit.rows import Row
from pointsman.router.auth.metadata import can_sign_in
from pointsman.router.clients.found_servers import leads_here
from pointsman.router.doctor.findings import Finding, Inspected, Level
from pointsman.router.downstream.stderr_log import sanitize
from pointsman.router.downstream.talk.request_meta import CLIENT_INFO
from pointsman.router.owner.client import LOG_STEP
from pointsman.router.owner.description import empty_variables, silent_step
from pointsman.router.owner.last_words import ASIDE
from pointsman.router.owner.replica_names import at_start, replica_name
from pointsman.router.serving.socket import ListenError, bind
from pointsman.router.serving.unix_address import reachable
from pointsman.router.serving.workers_file import none_answers

if TYPE_CHECKING:
    import httpx2

HEALTH_S = 5.0
LATELY_S = 86_400.0
PROBLEM_S = 3600.0  # that a refusal is a problem; then it is a note, because anybody can be refused under any name
MAX_ROWS = 5000
MAX_CLIENTS = 10
MAX_FLAG_CHARS = 300
# What programs say when they refuse a certificate. A mere mention, as in a warning on SSL_CERT_FILE, proves nothing.
_REFUSED_CERTIFICATE = re.compile(
    r"invalid peer certificate|certificate[ _]verify[ _]failed|certificate has expired|CERT_HAS_EXPIRED|UnknownIssuer|"
    r"self[-_ ]signed[-_ ]cert|unable[_ ]to[_ ](?:get|verify)[_ ](?:local|the|issuer|first|leaf)|"
    r"certificate signed by unknown authority|CERT_ALTNAME_INVALID|TLS certificate or handshake was not accepted",
    re.IGNORECASE,
)
NO_PROGRAM = "there is no such program"
INSTALL = {
    "uvx": "Install uv (https://docs.astral.sh/uv/)",
    "uv": "Install uv (https://docs.astral.sh/uv/)",
    "npx": "Install Node.js 18 or newer (https://nodejs.org/)",
    "npm": "Install Node.js 18 or newer (https://nodejs.org/)",
    "node": "Install Node.js 18 or newer (https://nodejs.org/)",
    "docker": "Install Docker (https://docs.docker.com/)",
}
_OF_DATABASE = ("audit_rows", "pins")  # problems that a gateway has because it cannot use the database
_LEVELS: dict[str, Level] = {"configuration_watch": "note"}  # all others are problems
_REFUSALS = {
    "unauthorized": "the token is missing, wrong, revoked or expired; `pointsman client add NAME` sets a client up, "
    "`pointsman token create NAME` prints a new token",
    UNKNOWN_HOST: "the host name in its URL is not one of the gateway's; if it should be, add it to "
    "`listen.allowed_hosts`, with its port if the URL has one",
    UNKNOWN_ORIGIN: "a web page sent it, whose origin is not allowed; if the page is yours, add its origin to "
    "`listen.allowed_origins`, and serve it through your own proxy, because answers carry no CORS headers",
    UNKNOWN_REPLICA: "it sent a header `X-Pointsman-Peer` that is not from a replica of this gateway; let the client "
    "or the proxy leave it out, and if a replica sent it, compare the clocks and `state.request_keys` of the replicas",
    "denied": "there is no project of the name that it sent, or the token does not include it; "
    "`pointsman project list` and `pointsman token list` show what there is",
    TOKEN_EXPIRED: "its access token has expired or is not valid yet; sign in again in the client, and if that does "
    "not help, compare the clocks",
    TOKEN_AUDIENCE: "its access token was issued for another service; compare `aud` of the token with `auth.audience`, "
    "or let the client ask for `resource`",
    TOKEN_ISSUER: "its access token is from an issuer that `auth` does not name; compare `iss` of the token with "
    "`auth.issuer`, also the slash at the end",
    TOKEN_SIGNATURE: "the signature of its access token was not accepted; sign in again in the client",
}
_SIGN_IN_REFUSALS = {  # where clients can sign in
    "unauthorized": "it has not signed in, or its token is missing, wrong, revoked or expired; sign in again in the "
    "client, or give it a token: `pointsman client add NAME` sets a client up",
    "denied": "there is no project of the name that it sent, its token or grant does not include it, or no rule of "
    "`auth` holds for the account; `pointsman project list` and `pointsman token list` show what there is",
}


async def check_gateway(inspected: Inspected) -> list[Finding]:
    running = inspected.running
    if inspected.status is None and inspected.workers is not None:
        return [Finding("gateway", "problem", none_answers(inspected.workers))]
    if running is None:
        text = f"No gateway runs with the state folder {inspected.state_dir}."
        step = "`pointsman serve` starts one, `pointsman service install` keeps it running"
        return [Finding("gateway", "problem", f"{text} {step}."), *_check_port(inspected)]
    if inspected.status is not None and "worker" in inspected.status:
        return await _check_workers(inspected, running.url)
    name = f"The gateway on {running.url} (process {running.pid})"
    problem = await _ask_over_http(inspected, running.url, name)
    if problem is not None:
        return [problem, *await _check_replicas(inspected)]
    if inspected.status is None:
        return [Finding("gateway", "problem", f"{name} does not answer its owner: {inspected.channel_problem}")]
    return [*_health(inspected, name, inspected.status), *await _check_replicas(inspected)]


async def _check_workers(inspected: Inspected, url: str) -> list[Finding]:
    """Ask each worker over its own socket: behind their port, any of them may answer."""
    status = inspected.status or {}
    away = {one["worker"]: _away(one) for one in status.get("workers", ()) if one["problem"]}
    findings: list[Finding] = []
    for one in status["replicas"]:
        name = f"{at_start(replica_name(one))} (process {one['process']})"
        its, path = one.get("status"), Path(one["address"].removeprefix("unix:"))
        if its is None:
            problem = away.pop(one.get("worker"), None)
            findings.append(problem or Finding("gateway", "problem", f"{name} does not answer. {one['problem']}"))
            continue
        away.pop(one.get("worker"), None)
        problem = await _ask_over_http(inspected, url, name, path)
        findings += [problem] if problem is not None else _health(inspected, f"{name} on {url}", its)
    findings += away.values()
    if all(finding.level != "problem" for finding in findings):
        problem = await _ask_over_http(inspected, url, f"The port of the workers, {url},")
        findings += [problem] if problem is not None else []
    return findings


def _away(one: Mapping[str, Any]) -> Finding:
    """A worker that is starting, or does not run, in the words of its parent."""
    return Finding("gateway", "note" if one["state"] == "starting" else "problem", one["problem"])


async def _check_replicas(inspected: Inspected) -> list[Finding]:
    """The same for each other replica, as far as it can be asked from here."""
    findings: list[Finding] = []
    for one in inspected.other_replicas:
        name, its = at_start(replica_name(one)), one.get("status")
        if its is None:
            process = f" (process {one['process']})" if one.get("process") else ""
            findings.append(Finding("gateway", "problem", f"{name}{process} does not answer. {one['problem']}"))
            continue
        name = f"{name} on {its['url']} (process {its['process']})"
        here = one["address"].startswith("unix:")  # else the answer came over its port, and its URL is its machine's
        problem = await _ask_over_http(inspected, its["url"], name) if here else None
        findings += [problem] if problem is not None else _health(inspected, name, its)
    return findings


def _health(inspected: Inspected, name: str, status: Mapping[str, Any]) -> list[Finding]:
    told = _without_repetitions(inspected, status["problems"])
    findings = [Finding("gateway", _LEVELS.get(key, "problem"), f"{name}: {text}") for key, text in told.items()]
    if not status["ready"] and not findings:
        findings.append(Finding("gateway", "problem", f"{name} is not ready yet, or about to end."))
    without = ", and goes on without the database" if len(told) < len(status["problems"]) else ""
    return findings or [Finding("gateway", "ok", f"{name} is ready{without}.")]


def _without_repetitions(inspected: Inspected, problems: Mapping[str, str]) -> Mapping[str, str]:
    """Leave out what follows from a database that is away: once for each gateway, or not at all if we cannot use it."""
    if "state_database" not in problems:
        return problems
    known = ("state_database", *_OF_DATABASE) if inspected.database_is_away else _OF_DATABASE
    return {key: text for key, text in problems.items() if key not in known}


def check_servers(inspected: Inspected) -> list[Finding]:
    """Report each server that should run and does not, with its own words and the command that helps.

    What holds at all replicas is said once, without their names.
    """
    if inspected.status is None:
        return []
    replicas = inspected.status.get("replicas", ())
    told = {replica_name(one): one.get("status") for one in replicas} or {"": inspected.status}
    found = {name: _check_servers_of(inspected, its["servers"]) for name, its in told.items() if its is not None}
    where: dict[Finding, list[str]] = {}
    for name, findings in found.items():
        for finding in findings:
            where.setdefault(finding, []).append(name)
    return [_at(names, finding) if len(names) < len(found) else finding for finding, names in where.items()]


def _at(names: list[str], finding: Finding) -> Finding:
    return dataclasses.replace(finding, message=f"At {', '.join(names)}: {finding.message}")


def _check_servers_of(inspected: Inspected, servers: Mapping[str, Any]) -> list[Finding]:
    failed = [one for one in servers["list"] if one["enabled"] and one["state"] == "failed"]
    findings = [_failed(inspected, one) for one in failed]
    hung = _hung_runners(inspected)
    for one in servers["list"]:
        if one["enabled"] and one["state"] == "running" and not one["tools"]:
            if not (one.get("unread") and inspected.database_is_away):  # `check_database` has said it
                findings.append(_without_tools(one))
        elif one["enabled"] and one["state"] == "not answering":
            findings.append(_silent(one, hung.get(one["id"])))
        elif one["enabled"] and one["state"] == NEEDS_SIGN_IN:
            findings.append(Finding("servers", "problem", f"Server `{one['id']}` does not run: {one['reason']}."))
        elif one["enabled"] and one["state"] == "starting":
            findings.append(Finding("servers", "note", f"Server `{one['id']}` is starting: {one['reason']}."))
    if findings or not servers["list"]:
        return findings or [Finding("servers", "note", "No servers yet. `pointsman server add NAME COMMAND` adds one.")]
    return [Finding("servers", "ok", _count(servers["running"], servers["tools"]))]


def check_definitions(inspected: Inspected) -> list[Finding]:
    """Report tools whose definitions a person should read: most are harmless, so that it is a note."""
    findings = []
    for one in inspected.status["servers"]["list"] if inspected.status is not None else ():
        if flags := one.get("flags"):
            count = counted({(flag["kind"], flag["tool"]) for flag in flags})
            of_tools = "The definition of " if count == "1 tool" else "The definitions of "
            what = f"{of_tools if count.endswith(('tool', 'tools')) else ''}{count}"
            text = f"{what} of server `{one['id']}` should be read before you trust the server."
            lines = tuple(sanitize(flag["text"], MAX_FLAG_CHARS) for flag in flags)
            findings.append(Finding("definitions", "note", text, lines))
    return findings


def check_approvals(inspected: Inspected) -> list[Finding]:
    """Note calls that wait for the owner's yes."""
    waiting = inspected.status.get("waiting", {}).get("calls") if inspected.status is not None else None
    if not waiting:
        return []
    what = "1 call waits" if waiting == 1 else f"{waiting} calls wait"
    return [Finding("approvals", "note", f"{what} for your yes. `pointsman approve` lists what waits.")]


def check_own_server(inspected: Inspected) -> list[Finding]:
    """Report a server that leads back to the gateway: it is refused, or answers with the gateway's own tools."""
    return [
        Finding(
            "servers",
            "problem",
            f"The gateway is configured as its own server: `{server_id}` leads back to it. "
            f"`pointsman server remove {server_id}` removes it.",
        )
        for server_id in _own_servers(inspected)
    ]


def check_refused_clients(inspected: Inspected) -> list[Finding]:
    """Report clients whose last request was refused, by the name that each gave."""
    since_ms = int((time.time() - LATELY_S) * 1000)
    try:
        rows = inspected.read_audit(Filter(since_ms=since_ms), newest=MAX_ROWS)
    except READ_ERRORS as error:
        if inspected.database_is_away:
            return []  # `check_database` has said it
        message = f"The audit cannot be read: {str(error).rstrip('.')}."
        return [Finding("clients", "problem", message)] if rows_exist(inspected) else []
    refusals = _refusals(rows)
    gateway = refusals.pop(str(CLIENT_INFO["name"]), None)
    findings = [_refused_gateway(gateway)] if gateway is not None and not _own_servers(inspected) else []
    advice = advice_for(inspected)
    return findings + [_refused(client, one, advice) for client, one in list(refusals.items())[:MAX_CLIENTS]]


def _count(servers: int, tools: int) -> str:
    return f"{servers} server{' runs' if servers == 1 else 's run'}, with {tools} tool{'' if tools == 1 else 's'}."


def rows_exist(inspected: Inspected) -> bool:
    return inspected.state_dir.is_dir()


@dataclass(slots=True)
class _Refused:
    code: str  # the last cause
    count: int  # of refusals for that cause, since the last for another one
    last: str


def _refusals(rows: list[Row]) -> dict[str, _Refused]:
    """The last refusals by client; a client that was served afterwards is in order again."""
    refused: dict[str, _Refused] = {}
    for row in rows:
        if row.outcome == "denied" and row.code in _REFUSALS:
            before = refused.get(row.client)
            repeats = row.repeats if isinstance(row.repeats, int) else 1
            earlier = before.count if before is not None and before.code == row.code else 0
            refused[row.client] = _Refused(row.code, earlier + repeats, row.time)
        elif row.outcome == "ok":
            refused.pop(row.client, None)
    return refused


def advice_for(inspected: Inspected) -> Mapping[str, str]:
    signs_in = inspected.config is not None and can_sign_in(inspected.config)
    return {**_REFUSALS, **_SIGN_IN_REFUSALS} if signs_in else _REFUSALS


def _refused(client: str, refused: _Refused, advice: Mapping[str, str]) -> Finding:
    when, why = _when(refused), advice[refused.code]
    if not client:  # a scanner, or a client that did not get as far as its name
        return Finding("clients", "note", f"Clients that gave no name were {when}: {why}.")
    name = sanitize(client, 60).replace("`", "'")  # it cannot end its quotes
    ago_s = time.time() - datetime.fromisoformat(refused.last).timestamp()
    level: Level = "problem" if ago_s <= PROBLEM_S else "note"
    return Finding("clients", level, f"Client `{name}` was {when}: {why}.")


def _when(refused: _Refused) -> str:
    times = "once" if refused.count == 1 else f"{refused.count} times"
    return f"refused {times} in the last 24 h, last at {refused.last}"


def _refused_gateway(refused: _Refused) -> Finding:
    """A gateway was refused as a client, and this one does not have itself as a server any more."""
    return Finding(
        "clients",
        "note",
        f"A gateway was {_when(refused)}, as a client of this one: either this gateway was configured as its own "
        "server and is no longer, or another gateway has it as a server, without a valid token.",
    )


def _own_servers(inspected: Inspected) -> list[str]:
    config = inspected.config
    if config is None:
        return []
    urls = [url for url in (inspected.configured_url,) if url is not None]
    if inspected.running is not None:
        urls.append(inspected.running.url)
    elif any(_check_port(inspected)):
        return []  # another program has the port, and may well be that server
    return [
        server_id
        for server_id, one in config.servers.items()
        if one.enabled and leads_here({"url": one.url, "command": one.command, "args": one.args}, urls)
    ]


async def _ask_over_http(inspected: Inspected, url: str, name: str, path: Path | None = None) -> Finding | None:
    """Ask for its health as a client would, with the token if there is one. `path`: at this socket, not at the port."""
    import httpx2

    headers = {"Authorization": f"Bearer {inspected.token}"} if inspected.token else {}
    try:
        async with (
            _transport(path) as transport,
            httpx2.AsyncClient(timeout=HEALTH_S, trust_env=False, transport=transport) as http,
        ):
            answer = await http.get(url.removesuffix("/mcp") + "/health", headers=headers)
    except httpx2.HTTPError as error:
        return Finding("gateway", "problem", f"{name} does not answer: {_reason(error)}. {LOG_STEP}.")
    if inspected.token and answer.status_code == 401:
        return Finding("gateway", "problem", f"{name} does not accept the token in POINTSMAN_TOKEN.")
    return None


@asynccontextmanager
async def _transport(path: Path | None) -> AsyncIterator[httpx2.AsyncHTTPTransport | None]:
    import httpx2

    with reachable(path) if path is not None else nullcontext() as address:
        yield httpx2.AsyncHTTPTransport(uds=address) if address is not None else None


def _reason(error: httpx2.HTTPError) -> str:
    import httpx2

    match error:
        case httpx2.TimeoutException():
            return f"no answer within {HEALTH_S:g} s"
        case httpx2.ConnectError():
            return "nothing accepts connections there"
    return "it ended the connection without an answer"


def _check_port(inspected: Inspected) -> Iterator[Finding]:
    """Check that a gateway could listen."""
    if inspected.config is None:
        return
    listen = inspected.config.listen
    try:
        bind(listen.host, listen.port).close()
    except ListenError as error:
        yield Finding("port", "problem", str(error))


def _failed(inspected: Inspected, one: dict[str, Any]) -> Finding:
    server_id, reason = str(one["id"]), str(one["reason"] or "no reason is known")
    lines = tuple(one.get("lastWords", ()))
    help_ = f"`pointsman server test {server_id}` tries it again"
    if lines:
        help_ += f", `pointsman server log {server_id}` shows more"
    if any(_REFUSED_CERTIFICATE.search(text) and not ASIDE.match(text) for text in (reason, *lines)):
        help_ = (
            "It does not trust a certificate: behind a company's proxy, set SSL_CERT_FILE (and NODE_EXTRA_CA_CERTS for "
            f"Node) to the company's CA where the gateway is started. {help_}"
        )
    elif NO_PROGRAM in reason:
        server = inspected.config.servers.get(server_id) if inspected.config is not None else None
        install = INSTALL.get(str(server.command)) if server is not None else None
        help_ = f"{install}. {help_}" if install else help_
    elif one["kind"] in ("http", "sse") and "`headers`" not in reason:
        help_ = f"Check `servers.{server_id}.url` and its headers. {help_}"
    if empty := empty_variables(one.get("emptyVariables", ())):
        help_ = f"{empty} {help_}"
    return Finding("servers", "problem", f"Server `{server_id}` does not run: {reason.rstrip('.')}. {help_}.", lines)


def _without_tools(one: dict[str, object]) -> Finding:
    name = f"Server `{one['id']}` runs, but"
    if one["tools"] is None:
        step = f"`pointsman server test {one['id']}` tries again and says why"
        return Finding("servers", "problem", f"{name} has not listed its tools. {step}.")
    if one.get("unread"):
        cause = "it is not known what was approved, because the pins cannot be used"
        return Finding("servers", "problem", f"{name} offers no tools: {cause}. It does when they can be read again.")
    if held := one.get("held"):
        step = f"`pointsman pin diff {one['id']}` shows what waits, `pointsman pin approve {one['id']}` approves it"
        count = "1 definition" if held == 1 else f"{held} definitions"
        return Finding("servers", "note", f"{name} all of its tools wait for approval ({count}). {step}.")
    step = "If it should, look at its arguments and variables in the configuration"
    return Finding("servers", "note", f"{name} offers no tools. {step}.")


def _silent(one: Mapping[str, Any], hung: str | None) -> Finding:
    step = f"It hangs, or is busy with a call. {silent_step(one)}"
    if hung is not None:  # which a restart would have to reach
        step = f"{at_start(hung)} runs it for all and does not answer; once that has ended, another one starts it anew"
    return Finding("servers", "problem", f"Server `{one['id']}` does not answer: {one['reason']}. {step}.")


def _hung_runners(inspected: Inspected) -> dict[str, str]:
    """The name of the replica that runs a server for all, for each server where it does not answer."""
    if inspected.status is None:
        return {}
    silent = {
        one["folder"]: replica_name(one) for one in inspected.other_replicas if "folder" in one and "problem" in one
    }
    servers = inspected.status["servers"]["list"]
    return {one["id"]: silent[one["runsAt"]] for one in servers if one.get("runsAt") in silent}


def is_loopback(host: str) -> bool:
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(str(address[4][0]).startswith(("127.", "::1")) for address in found)
