"""The screens of the page, in the order of the navigation. A screen is one module, one template and one test file."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

from starlette.responses import Response

from pointsman.router.owner.parts import Parts

if TYPE_CHECKING:
    from pointsman.router.page.view import View

Handler = Callable[["View"], Awaitable[Response]]
Topic = Callable[[Parts, str], Awaitable[object]]
"""Returns a value that changes when a part of a screen does. The text is what follows `:` in the topic's name."""

SCREENS = (
    "overview",
    "servers",
    "tools",
    "lab",
    "activity",
    "approvals",
    "projects",
    "tokens",
    "archive",
)


@dataclass(frozen=True, slots=True)
class Screen:
    """`SCREEN` of a module in `screens`."""

    name: str
    title: str  # in the navigation
    icon: str  # a name in templates/_icons.html
    path: str  # of the link in the navigation
    routes: Sequence[tuple[str, str, Handler]]  # GET or POST, path, function
    topics: Mapping[str, Topic] = field(default_factory=dict)  # for `data-live`


def load_screens() -> tuple[Screen, ...]:
    return tuple(import_module(f"pointsman.router.page.screens.{name}").SCREEN for name in SCREENS)
