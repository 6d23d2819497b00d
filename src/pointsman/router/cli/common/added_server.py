"""What `pointsman server add` checks before it writes: a URL without its scheme, our options among the command's
arguments, and the gateway itself as its own server."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pointsman.config.errors import closest
from pointsman.config.settings import read_settings
from pointsman.router.cli.common.edited import Edited
from pointsman.router.cli.common.gateway_address import configured_url, edited_url
from pointsman.router.cli.common.options import ConfigCommandError, note, report_config_errors
from pointsman.router.clients.found_servers import leads_here

_ADDRESS = re.compile(
    r"(?P<host>localhost|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*|\[[0-9A-Fa-f:.]+\]):\d{1,5}(?:[/?].*)?"
    r"|(?P<domain>[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,})/.*",
    re.DOTALL,
)
_SCHEMES = ("https", "http")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_LOCAL = re.compile(r"localhost|127\..*|\[::1\]|10\..*|192\.168\..*")
_OWN_ENV = frozenset({"docker", "podman", "nerdctl"})  # programs that have an option `--env`, too


def check_command(command: Sequence[str], options: Collection[str]) -> None:
    """Refuse an address without its scheme; point at options of ours that follow the command, and so belong to it."""
    program, *rest = command
    scheme, separator, rest_of_url = program.partition("://")
    if separator and scheme not in _SCHEMES and _SCHEME.fullmatch(scheme):
        near = closest(scheme, _SCHEMES)
        meant = f" Did you mean `{near}://{rest_of_url}`?" if near else ""
        raise ConfigCommandError(f"The URL of a server starts with http:// or https://, not {scheme}://.{meant}")
    address = _ADDRESS.fullmatch(program)
    if address is not None and shutil.which(program) is None:
        local = _LOCAL.fullmatch(address["host"] or "") is not None
        meant = f"{'http' if local else 'https'}://{program}"
        raise ConfigCommandError(f"There is no program `{program}`, and a URL has a scheme. Did you mean `{meant}`?")
    if program in _OWN_ENV:
        return
    swallowed = next((word for word in rest if word.partition("=")[0] in options), None)
    if swallowed is not None:
        option = swallowed.partition("=")[0]
        note(
            f"`{option}` stands after the command, so it is an argument of `{program}`. Options of `server add` stand "
            f"before the command: pointsman server add NAME {option} ... {program} ..."
        )


def refuse_own_gateway(entry: Mapping[str, Any], edited: Edited) -> None:
    """Refuse a server that leads back to the gateway of this configuration. Raises ConfigCommandError."""
    with report_config_errors():
        settings = read_settings()
        own_urls = (edited_url(edited, settings), configured_url(edited.path, settings))
    if leads_here(entry, own_urls):
        raise ConfigCommandError(
            f"Nothing was added: that is this gateway itself ({own_urls[0]}), which cannot be its own server. "
            "`pointsman client add NAME` connects a client to it."
        )
