"""`pointsman open` and `pointsman page`: links to the gateway's page, and the end of its sessions."""

from __future__ import annotations

from pathlib import Path

import click

from pointsman.router.cli.common.browser import has_screen, opened
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
    if not no_browser and has_screen() and opened(made["url"]):
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
