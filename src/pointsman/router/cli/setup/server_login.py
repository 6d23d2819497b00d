"""`pointsman server login` and `logout`: a person signs in to a server in a browser on this machine."""

from __future__ import annotations

import os
import secrets
import socket
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import click

from pointsman.core.escape import escaped
from pointsman.router.cli.common.browser import has_screen, opened
from pointsman.router.cli.common.options import CommandError, json_option, note, state_dir_option
from pointsman.router.cli.common.output import echo, print_json, table
from pointsman.router.cli.common.owner import ask_gateway, progress
from pointsman.router.cli.common.server_argument import server_argument

WAIT_S = 600.0  # for the person; the gateway forgets the sign-in after that
BEGIN_S = 70.0
FINISH_S = 120.0
_REQUEST_S = 5.0  # for a browser to send its request
_MAX_PARAMETERS = 16
_HEADING = ["ID", "WHO", "PROJECT", "SIGNED IN", "WORKS"]
_DONE = b"<!doctype html><title>Pointsman</title><p>You can close this window and go back to the terminal.</p>"
_NO = b"<!doctype html><title>Pointsman</title><p>This is not the sign-in that was begun in the terminal.</p>"


@click.command()
@server_argument
@click.option("--no-browser", is_flag=True, help="Only print the link.")
@click.option("--for", "token", metavar="TOKEN", help="Sign in for this token (`credentials: per-caller`).")
@click.option("--project", metavar="ID", help="With --for: in this project; by default without a project.")
@state_dir_option
@json_option
def login(
    server_id: str, no_browser: bool, token: str | None, project: str | None, state_dir: Path | None, as_json: bool
) -> None:
    """Sign in to SERVER, whose entry has `oauth`, in a browser on this machine."""
    if project is not None and token is None:
        raise click.UsageError("--project needs --for.")
    caller: dict[str, Any] = {} if token is None else {"token": token, "project": project}
    whose = "" if token is None else f" for `{token}`" + (f" in project `{project}`" if project else "")
    port = ask_gateway(state_dir, "sign_in_port", server=server_id, **caller)
    with _listening(port["port"] or 0, required=port.get("required", True)) as callback:
        with progress(f"Asking where to sign in to `{server_id}`{whose} ..."):
            begun = ask_gateway(
                state_dir,
                "begin_sign_in",
                timeout_s=BEGIN_S,
                server=server_id,
                redirectUri=callback.redirect_uri,
                **caller,
            )
        _show_link(begun, whose, no_browser, as_json)
        answer = callback.wait(begun["state"], WAIT_S)
    if answer is None:
        raise CommandError(f"Nobody signed in to `{server_id}`{whose} within {WAIT_S / 60:g} minutes.")
    with progress("Signing in ..."):
        found = ask_gateway(state_dir, "finish_sign_in", timeout_s=FINISH_S, state=answer.pop("state"), answer=answer)
    if as_json:
        print_json(found)
        return
    echo(f"Signed in to `{server_id}`{whose}.")
    if found["state"] != "running":
        raise CommandError(f"It does not run: {escaped(found['reason'] or 'no reason is known')}")


@click.command()
@server_argument
@state_dir_option
@json_option
def logout(server_id: str, state_dir: Path | None, as_json: bool) -> None:
    """Forget the sign-in to SERVER, and end it at its authorization server if that offers it."""
    answer = ask_gateway(state_dir, "end_sign_in", timeout_s=FINISH_S, server=server_id)
    if as_json:
        print_json(answer)
    elif answer["existed"]:
        echo(f"Signed out of `{server_id}`.")
    else:
        note(f"There was no sign-in to `{server_id}`.")


@click.command()
@server_argument
@click.option("--revoke", "credential", metavar="ID", help="Forget this account, and end it where it was made.")
@click.option("--revoke-all", is_flag=True, help="Forget all of them, and end each where it was made.")
@state_dir_option
@json_option
def credentials(
    server_id: str, credential: str | None, revoke_all: bool, state_dir: Path | None, as_json: bool
) -> None:
    """List the accounts of callers at SERVER (`credentials: per-caller`), or revoke one or all."""
    if credential is not None and revoke_all:
        raise click.UsageError("--revoke and --revoke-all exclude each other.")
    if credential is not None:
        _revoke(server_id, credential, state_dir, as_json)
        return
    answer = ask_gateway(state_dir, "credentials", server=server_id)
    found = answer["credentials"]
    if revoke_all and found:
        for one in found:
            _revoke(server_id, one["id"], state_dir, as_json)
    elif as_json:
        print_json(found)
    elif not found:
        why = answer.get("unusedReason", "")
        note(
            f"`{server_id}` has no accounts of callers: {why}." if why else f"No caller has signed in to `{server_id}`."
        )
    else:
        for line in table([_HEADING, *(_row(one) for one in found)]):
            echo(line)


def _revoke(server_id: str, credential: str, state_dir: Path | None, as_json: bool) -> None:
    ended = ask_gateway(state_dir, "end_credential", timeout_s=FINISH_S, server=server_id, credential=credential)
    if as_json:
        print_json(ended)
    note(f"The account of {escaped(ended['who'])} at `{server_id}` is revoked.")


def _row(one: dict[str, Any]) -> list[str]:
    works = "yes" if one["works"] else f"no: {one['problem'] or 'sign in again'}"
    return [one["id"], one["who"], one["project"] or "-", one["signedIn"], works]


def _show_link(begun: dict[str, Any], whose: str, no_browser: bool, as_json: bool) -> None:
    """The gateway has checked that it is an https URL, or one of this machine for a server of this machine."""
    url = begun["url"]
    if as_json:
        print_json({"url": url, "server": begun["server"]})
        sys.stdout.flush()
        return
    echo(escaped(url))
    sys.stdout.flush()
    if not no_browser and has_screen() and opened(url):
        how = f"Opened in the browser: sign in at {escaped(begun['host'])}{whose}."
    else:
        how = f"Open it in a browser on this machine, and sign in at {escaped(begun['host'])}{whose}."
    note(f"{how} This command waits for it.")


def _listening(port: int, *, required: bool) -> _Callback:
    """`required`: no other port will do. Else it is the one of an earlier sign-in, whose client can be used again."""
    try:
        return _Callback(port)
    except CommandError:
        if required:
            raise
        return _Callback(0)


class _Callback:
    """A listener on 127.0.0.1 for one answer: the one with the state of this sign-in."""

    def __init__(self, port: int) -> None:
        self._answer: dict[str, str] | None = None
        self._state = ""
        owner = self

        class Handler(BaseHTTPRequestHandler):
            timeout = _REQUEST_S

            def do_GET(self) -> None:
                taken = owner.take(self.path)
                self.send_response(200 if taken else 404)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Cache-Control", "no-store")
                self.send_header("Referrer-Policy", "no-referrer")
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(_DONE if taken else _NO)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """The request holds a code."""

        class Server(HTTPServer):
            allow_reuse_address = os.name == "posix"  # the connections of a sign-in just now do not keep the port
            address_family = socket.AF_INET

            def handle_error(self, request: object, client_address: object) -> None:
                """A browser that leaves is no concern."""

        try:
            self._server = Server(("127.0.0.1", port), Handler)
        except OSError as error:
            raise CommandError(f"Could not listen on 127.0.0.1:{port}: {error.strerror}.") from error

    @property
    def redirect_uri(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/callback"

    def wait(self, state: str, limit_s: float) -> dict[str, str] | None:
        """Return the parameters of the answer, or None if none came in time."""
        self._state = state
        end = time.monotonic() + limit_s
        while self._answer is None and (left := end - time.monotonic()) > 0:
            self._server.timeout = left
            self._server.handle_request()
        return self._answer

    def take(self, target: str) -> bool:
        """Take the first request with the right path and state; all others are answered 404."""
        parts = urlsplit(target)
        if parts.path != "/callback" or self._answer is not None:
            return False
        try:
            given = parse_qsl(parts.query, keep_blank_values=True, max_num_fields=_MAX_PARAMETERS)
        except ValueError:
            return False
        answer = dict(given)
        if len(answer) != len(given) or not secrets.compare_digest(
            answer.get("state", "").encode(), self._state.encode()
        ):
            return False
        self._answer = answer
        return True

    def __enter__(self) -> _Callback:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.server_close()
