"""The definitions of a server that wait for approval, on its screen."""

from __future__ import annotations

from starlette.responses import Response

from pointsman.core.model import Json
from pointsman.router.owner.channel import OwnerError
from pointsman.router.owner.parts import Parts
from pointsman.router.owner.pins import approve, forget, pins
from pointsman.router.page.rendering import plural
from pointsman.router.page.view import CLIENT, View

MAX_SHOWN = 50
_KINDS = {"+": "add", "-": "del"}


async def waiting_definitions(parts: Parts, server_id: str) -> Json:
    """What the template shows, by the server's last lists."""
    if not parts.pins.pins(server_id):
        return {"held": [], "held_beyond": 0, "waits": False, "gone": [], "gone_beyond": 0}
    [one] = (await pins(parts, server_id, diffs=MAX_SHOWN, at_once=True))["servers"]
    held = [
        each | {"lines": [(_KINDS.get(line[:1], "same"), line[2:]) for line in each["diff"]]}
        for each in one["held"][:MAX_SHOWN]
    ]
    gone = one["gone"][:MAX_SHOWN]
    return {
        "held": held,
        "held_beyond": len(one["held"]) - len(held),
        "waits": one["waits"],
        "gone": gone,
        "gone_beyond": one["goneCount"] - len(gone),
    }


async def approve_definitions(view: View) -> Response:
    """Approve the definitions that the person has seen, by their digests."""
    server_id, digests = view.path("id"), set(view.fields("digest")[:MAX_SHOWN])
    held = [one for one in view.parts.pins.held(server_id) if one.digests.whole.hex() in digests]
    if not held and not view.parts.pins.waits(server_id):
        raise OwnerError("unchanged", "It has changed again, or was approved already. Look again.")
    wanted = [(one.kind, one.name, one.digests.whole.hex()) for one in held]
    done = await approve(view.parts, server_id, wanted, CLIENT)
    return view.done(f"Approved {plural(len(done['approved']), 'definition')}.", f"/page/servers/{server_id}")


async def forget_definitions(view: View) -> Response:
    """Drop the approval of definitions that the person saw as no longer listed."""
    server_id = view.path("id")
    wanted = [one.partition(":") for one in view.fields("gone")[:MAX_SHOWN]]
    done = await forget(view.parts, server_id, [(kind, digest) for kind, _, digest in wanted], CLIENT)
    if not done["forgotten"]:
        raise OwnerError("unchanged", "They are listed again, or were forgotten already. Look again.")
    return view.done(f"Forgot {plural(done['forgotten'], 'definition')}.", f"/page/servers/{server_id}")
