"""What protects the forms and answers of the page, and of the consent page, from other pages in the same browser."""

from __future__ import annotations

import secrets

from starlette.requests import Request
from starlette.responses import Response

from pointsman.router.owner.sign_in.page_sign_ins import Session
from pointsman.router.page.forms import FormError

SECURITY = {
    "Content-Security-Policy": (
        "default-src 'self'; frame-ancestors 'none'; form-action 'self'; base-uri 'none'; object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # With `no-referrer`, browsers send `Origin: null` with our own forms, too, and no form could be told from a
    # stranger's. Other hosts get no Referer with this, either. The answer that reads a code has `no-referrer`.
    "Referrer-Policy": "same-origin",
}


def secured(response: Response) -> Response:
    """Add the headers that every answer has. Those that it has already stay."""
    for name, value in SECURITY.items():
        response.headers.setdefault(name, value)
    response.headers.setdefault("Cache-Control", "no-store")
    return response


def check_origin(request: Request, *own: str) -> None:
    """Require that a form comes from one of our origins. Raises FormError."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    if origin is None or origin.lower() not in {each.lower() for each in own}:
        raise FormError("This form does not come from this page, so nothing was changed.", 403)
    if site not in (None, "same-origin"):
        raise FormError("This form comes from another site, so nothing was changed.", 403)


def check_csrf(form: dict[str, list[str]], session: Session) -> None:
    """Require the session's token in a form, and take it out. Raises FormError."""
    given = form.pop("csrf", [""])[0]
    if not secrets.compare_digest(given.encode(), session.csrf.encode()):
        raise FormError("This form is of an earlier session. Load the page again, and repeat the change.", 403)
