"""The servers: how each is, and what the owner can do with it."""

from __future__ import annotations

from starlette.responses import Response

from pointsman.router.owner.operations import servers
from pointsman.router.page.registry import Screen
from pointsman.router.page.view import View


async def show(view: View) -> Response:
    return view.render("servers.html", servers=(await servers(view.parts, at_once=True))["servers"])


SCREEN = Screen(
    name="servers", title="Servers", icon="servers", path="/page/servers", routes=[("GET", "/page/servers", show)]
)
