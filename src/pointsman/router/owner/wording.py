"""The gateway's sentences for models in words for its owner, who has other next steps."""

from __future__ import annotations

from pointsman.core.errors import NOT_RUN, SEE_TOOLS, TRY_LATER
from pointsman.core.model import Json
from pointsman.core.wire import InvalidJsonError, decode, encode
from pointsman.router.owner.channel import OwnerError

_DOCTOR = "`pointsman doctor` names the reason."
_ALL_TOOLS = "`pointsman tools list` shows all tools."
_STEPS = (
    *((step, _ALL_TOOLS) for step in SEE_TOOLS),
    (TRY_LATER, _DOCTOR),
    (NOT_RUN, "The call did not run."),
    ("Use other tools; the operator finds the reason with `pointsman doctor`.", _DOCTOR),
    (
        "Use other tools; the operator signs in with `pointsman server login NAME`.",
        "Sign in with `pointsman server login NAME`.",
    ),
    ("; the operator finds the reason with `pointsman doctor`.", f". {_DOCTOR}"),
    ("If none fits, use other tools; the operator can make the server list fewer.", "Make the server list fewer."),
    (
        "Use other tools; the operator finds the names in the gateway's log.",
        "`pointsman log` has the names.",
    ),
    ("The operator finds the reason in the gateway's log; try again later.", "`pointsman log` has the reason."),
)
_OF_GATEWAY = ("unknown_tool", "server_unavailable", "audit_unavailable")  # codes of errors that these steps belong to


def for_owner(text: str) -> str:
    for model, owner in _STEPS:
        text = text.replace(model, owner)
    return text


def result_for_owner(result: Json) -> Json:
    """The result of a call, decoded whole; if it is an error of the gateway itself, in words for the owner.

    Raises OwnerError.
    """
    try:
        result = decode(encode(result))  # large content is still as the server sent it
    except InvalidJsonError as reason:
        raise OwnerError(
            "unreadable", f"The result cannot be shown: {reason}. Clients get it as it was sent."
        ) from None
    content = result.get("structuredContent")
    if not isinstance(content, dict):
        return result
    error = content.get("error")
    if not isinstance(error, dict) or error.get("code") not in _OF_GATEWAY:
        return result
    blocks = [block | {"text": for_owner(block["text"])} if "text" in block else block for block in result["content"]]
    reworded = error | {"message": for_owner(str(error.get("message", "")))}
    return result | {"content": blocks, "structuredContent": {**content, "error": reworded}}
