"""`pointsman open` and `pointsman page`: links to the gateway's page, and the end of its sessions."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from pointsman.router.cli.common.options import json_option, note, state_dir_option
from pointsman.router.cli.common.output import echo, print_json
from pointsman.router.cli.common.owner import ask_gateway


@click.command(name="open")
@click.option("--no-browser", is_flag=True, help="Only print the link.")
@state_dir_option
@json_option
def open_(no_browser: bool, state_dir: Path | None, as_json: bool) -> None:
    """Open the gateway's page in a browser, and print the link that signs it in.

    The link works once, within 10 minutes.
    """
    made = ask_gateway(state_dir, "page_link")
    if as_json:
        print_json(made)
        return
    echo(made["url"])
    if not no_browser and _has_screen() and _opened(made["url"]):
        note("Opened in the browser. The link works once, within 10 minutes.")
    else:
        note("Open it in a browser on this machine. It works once, within 10 minutes.")


@click.group()
def page() -> None:
    """Sign browsers out of the gateway's page."""


@page.command()
@state_dir_option
@json_option
def logout(state_dir: Path | None, as_json: bool) -> None:
    """Sign all browsers out. Unused links expire, too."""
    answer = ask_gateway(state_dir, "page_logout")
    if as_json:
        print_json(answer)
        return
    echo("All browsers are signed out of the page. `pointsman open` signs one in again.")


def _has_screen() -> bool:
    """A text browser would take the terminal, and a browser of another machine cannot use the link."""
    if not sys.stdout.isatty() or os.environ.get("SSH_CONNECTION"):
        return False
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _opened(url: str) -> bool:
    import webbrowser

    return webbrowser.open(url)
