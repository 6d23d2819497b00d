"""Approvals: the calls that wait for a person's yes, and the tools that have one for always."""

from __future__ import annotations

from starlette.responses import Response

from pointsman.router.owner.approvals import ANSWERS, answer_call, list_approvals, show_call, withdraw
from pointsman.router.owner.channel import OwnerError
from pointsman.router.owner.parts import Parts
from pointsman.router.page.registry import Screen
from pointsman.router.page.view import CLIENT, View

PATH = "/page/approvals"
_SAID = {
    "once": "Yes, once",
    "always": "Yes, always, until the tool's definition or the token changes",
    "refuse": "Refused",
}


async def show(view: View) -> Response:
    listed = await list_approvals(view.parts)
    return view.render(
        "approvals.html",
        in_use=listed["inUse"],
        waiting=[one for one in listed["pending"] if one["answer"] is None],
        answered=[one for one in listed["pending"] if one["answer"] is not None],
        always=listed["always"],
        sessions=listed["sessions"],
    )


async def show_arguments(view: View) -> Response:
    return view.render("approval.html", one=await show_call(view.parts, view.path("id")))


async def answer(view: View) -> Response:
    for said in ANSWERS:
        if view.field("answer") == said:
            one = await answer_call(view.parts, view.path("id"), said, CLIENT)
            return view.done(f"{_SAID[said]}: `{one['toolKey']}` by `{one['token']}`.{one['note']}", PATH)
    raise OwnerError("invalid_request", "The answer is missing.")


async def take_back(view: View) -> Response:
    one = await withdraw(view.parts, view.path("id"), CLIENT)
    return view.done(f"Withdrawn ({one['withdrawn']}): `{one['toolKey']}` by `{one['token']}` is asked again.", PATH)


async def _changes(parts: Parts, _: str) -> object:
    if parts.catalog.rights.confirm.idle:
        return ()
    listed = await list_approvals(parts)
    held = [one["id"] for one in (*listed["always"], *listed["sessions"])]
    return [(one["id"], one["answer"]) for one in listed["pending"]], held


SCREEN = Screen(
    name="approvals",
    title="Approvals",
    icon="check",
    path=PATH,
    routes=[
        ("GET", PATH, show),
        ("GET", PATH + "/{id}/arguments", show_arguments),
        ("POST", PATH + "/{id}", answer),
        ("POST", PATH + "/{id}/withdraw", take_back),
    ],
    topics={"approvals": _changes},
)
