"""Reads a form: urlencoded, of bounded size, and literal. No field names a program, and none holds a reference."""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.requests import Request

from pointsman.router.owner.changes import PROGRAM_KEYS, require_literal
from pointsman.router.owner.channel import OwnerError

MAX_FIELDS = 500


class FormError(Exception):
    """The form is refused. `str(error)` is shown to the person."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


async def read_form(request: Request, max_bytes: int) -> dict[str, list[str]]:
    """Raises FormError, ClientDisconnect."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise FormError("A form of this page is sent as application/x-www-form-urlencoded.", 415)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise FormError(f"The form has more than {max_bytes:,} bytes (`limits.body_bytes`).", 413)
    try:
        text = body.decode("ascii")
        form = parse_qs(text, keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
    except ValueError as error:
        raise FormError("The form is not urlencoded UTF-8 text, or has too many fields.") from error
    named = PROGRAM_KEYS.intersection(form)
    if named:
        raise FormError(f"`{min(named)}` is not accepted: no page names a program. Use `pointsman server add`.")
    try:
        require_literal([*form.values()])
    except OwnerError as error:
        raise FormError(str(error)) from None
    return form
