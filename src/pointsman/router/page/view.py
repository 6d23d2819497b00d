"""What a screen's function gets: the request of a browser that is signed in, and the answers it can give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from pointsman.router.owner.changes import Edit, apply_edit, previewed
from pointsman.router.owner.channel import OwnerError
from pointsman.router.owner.parts import Parts
from pointsman.router.owner.sign_in.page_sign_ins import Session
from pointsman.router.page.diff import diff_lines

if TYPE_CHECKING:
    from pointsman.router.page.app import PageApp

CLIENT = "page"  # in the audit
FLASH_S = 60.0
MAX_FLASH_CHARS = 1200
MAX_PAGE = 100_000


@dataclass(slots=True)
class View:
    """One request. `form` has the fields of a POST, without the CSRF token."""

    _app: PageApp
    request: Request
    session: Session
    screen: str
    form: dict[str, list[str]] = field(default_factory=dict)
    waiting: int | None = 0  # calls that wait for a person's yes, for the navigation; None: not known

    @property
    def parts(self) -> Parts:
        return self._app.parts

    @property
    def client_url(self) -> str:
        """The address of the gateway for clients, by the name that this browser uses."""
        return f"{self.request.url.scheme}://{self.request.headers['host']}/mcp"

    @property
    def address(self) -> str:
        """The path of this request. Not `request.url.path`, which is put together with the Host header."""
        return str(self.request.scope["path"])

    def path(self, name: str) -> str:
        return str(self.request.path_params[name])

    def query(self, name: str, default: str = "") -> str:
        return self.request.query_params.get(name, default)

    def number(self, name: str, default: int, most: int = MAX_PAGE) -> int:
        """A number from the address, at least 1; the default where it is none."""
        text = self.query(name)
        return min(max(int(text), 1), most) if text.isascii() and text.isdecimal() and len(text) < 9 else default

    def field(self, name: str, default: str = "") -> str:
        """A field of the form, without blanks around it."""
        return self.form.get(name, [default])[0].strip()

    def fields(self, name: str) -> list[str]:
        return [value.strip() for value in self.form.get(name, []) if value.strip()]

    def render(self, template: str, http_status: int = 200, **context: Any) -> Response:
        """Answer with a screen's template. It has `view`, and what is given here."""
        flash = None
        if "x-live" not in self.request.headers:  # a part that is updated must not take the message away
            flash = self.parts.sign_ins.unsealed(self.request.cookies.get(self._app.flash_cookie), "flash")
        body = self._app.renderer.render(template, view=self, flash=flash, **context)
        response = Response(body, http_status, media_type="text/html")
        if flash is not None:
            response.delete_cookie(self._app.flash_cookie, path="/", httponly=True, samesite="strict")
        return response

    def done(self, text: str, to: str, kind: str = "ok") -> Response:
        """Answer a form: go to `to`, and show `text` there. `kind`: ok, warn or bad."""
        response = RedirectResponse(to, 303)
        sealed = self.parts.sign_ins.sealed("flash", {"text": text[:MAX_FLASH_CHARS], "kind": kind}, FLASH_S)
        self._app.set_cookie(self.request, response, self._app.flash_cookie, sealed, int(FLASH_S))
        return response

    def set_login_cookie(self, response: Response, value: str, life_s: int) -> None:
        """Bind a sign-in to a server to this browser: it comes back from another site, which `strict` would hide."""
        secure = self.request.headers.get("x-forwarded-proto", "").lower() == "https"
        response.set_cookie(
            self._app.login_cookie,
            value,
            max_age=life_s,
            path="/page/signed-in",
            secure=secure,
            httponly=True,
            samesite="lax",
        )

    def problem(self, text: str, status: int = 409) -> Response:
        """Answer with what is wrong and the way back. An OwnerError that a screen raises becomes this."""
        return self.render("problem.html", status, problem=text)

    def confirm(
        self,
        title: str,
        text: str = "",
        *,
        button: str = "Save",
        danger: bool = False,
        diff: list[tuple[str, str]] | None = None,
        back: str = "",
        extra: Mapping[str, str] | None = None,
    ) -> Response:
        """Ask before the same form is sent again, with `confirmed` in it. `if view.confirmed:` then does the work."""
        kept = {name: values for name, values in self.form.items() if name != "confirmed" and name not in (extra or {})}
        fields = [(name, value) for name, values in kept.items() for value in values]
        fields += [("confirmed", "yes"), *(extra or {}).items()]
        return self.render(
            "confirm.html",
            title=title,
            text=text,
            button=button,
            danger=danger,
            diff=diff,
            fields=fields,
            back=back or self.back,
        )

    @property
    def confirmed(self) -> bool:
        return self.field("confirmed") == "yes"

    async def change(
        self,
        edit: Edit,
        kind: str,
        *,
        title: str,
        to: str,
        danger: bool = False,
        text: str = "",
        button: str = "Save",
    ) -> Response | None:
        """Edit the configuration file: show the diff first, then save exactly that, and have it in effect.

        Returns the page that asks, or None once the change is in effect; `to` is where the person goes back.
        Raises OwnerError. The audit has a row for each entry that the reload changes, with the client `page`.
        """
        change = await previewed(self.parts, edit, kind)
        seen = sha256(f"{change.before}\0{change.after}".encode(errors="replace")).hexdigest()
        if change.before == change.after:
            raise OwnerError("unchanged", "That is what the configuration has already.")
        if not self.confirmed or self.field("seen") != seen:
            if self.confirmed:
                text = "The configuration file has changed since. Look again: this is what would be saved now."
            diff = diff_lines(change.before, change.after)
            return self.confirm(title, text, button=button, diff=diff, danger=danger, back=to, extra={"seen": seen})
        await apply_edit(self.parts, edit, kind, CLIENT, change)
        return None

    def link(self, **changed: object) -> str:
        """This address with other parameters; None removes one. For pagers and filters."""
        given = {**self.request.query_params, **changed}
        kept = {name: value for name, value in given.items() if value not in (None, "")}
        return f"{self.address}?{urlencode(kept)}" if kept else self.address

    @property
    def back(self) -> str:
        """The address of the screen that this request belongs to."""
        return next((screen.path for screen in self._app.screens if screen.name == self.screen), "/")
