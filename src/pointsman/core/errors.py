"""The errors that cross layers, each with a code for programs, a sentence for people and the next step for the model.

GatewayError                 the caller can act on it; shown to the model
  UnknownToolError, InvalidArgumentsError, ServerUnavailableError (NotSentError), CallTimeoutError,
  AuditUnavailableError, RateLimitedError, UnknownResultError, SkillMismatchError, ConfirmationRequiredError,
  ConfirmationRefusedError, QuestionRefusedError
RefusedError                 the caller as a whole is refused; shown to the person
  UnauthorizedError, ForbiddenError
DownstreamError              a JSON-RPC error that a server answered with

The text of a class with a code, and the text below a code that no class has, is its description in
docs/reference/errors.md, which `make docs` writes. "Next:" begins the next step; links are relative to that page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

TRY_LATER = "Try again later, or use another tool."
MAY_HAVE_RUN = "The call had been sent and may have run: check before you repeat it, unless the tool only reads."
NOT_RUN = "The call did not run. Ask the operator to do that, or use another tool."  # the reason names the command

View = Literal["search", "keys", "flat"]  # how a caller learns of tools; `keys`: tool_discovery is switched off


class NextStep(NamedTuple):
    """What the model does next; it depends on how the caller learns of tools."""

    search: str
    keys: str
    flat: str = ""

    def after(self, said: str) -> NextStep:
        return NextStep(*(f"{said} {step}".strip() for step in self))

    def text(self, view: View) -> str:
        return {"search": self.search, "keys": self.keys, "flat": self.flat}[view]


ASK_OPERATOR = "Ask the operator for the keys of the tools that you can use: tool_discovery is switched off here."
SEE_TOOLS = NextStep(
    "Call tool_discovery to see the tools you can use.",
    ASK_OPERATOR,
    "Call `tools/list` to see the tools you can use.",
)


# Codes of audit rows and answers that no exception below stands for.
UNKNOWN_PROMPT = "unknown_prompt"
"""The prompt does not exist, or the caller may not use it. Next: list the prompts again."""
UNKNOWN_RESOURCE = "unknown_resource"
"""The resource does not exist, or the caller may not use it. Next: list the resources again."""
UNKNOWN_SKILL = "unknown_skill"
"""The skill does not exist, or the caller may not use it. Next: list the skills again with `skills/list`."""
TOOL_ERROR = "tool_error"
"""The tool answered with `isError`. Tools of the archive give [a code of their own](#codes-of-the-archive). Next: read
the tool's message; `pointsman server log SERVER` may have more."""
OVERLOADED = "overloaded"
"""The whole gateway is full; nothing was sent to a server. Next: try again after `Retry-After`; if it happens often,
raise [`limits`](configuration.md#limits)."""
BAD_REQUEST = "bad_request"
"""The request is not what HTTP, JSON-RPC or MCP ask for. Next: correct what the message names."""
TOO_LARGE = "too_large"
"""The request exceeds `limits.body_bytes`. Next: send less, or raise the limit."""
INTERNAL = "internal"
"""A bug in the gateway. Next: the log has the traceback; please report it."""
UNKNOWN_HOST = "unknown_host"
"""In audit rows: the request's `Host` is not a name of the gateway (HTTP 421). Next: add the name in the client's URL
to [`listen.allowed_hosts`](../guide/operations.md#reverse-proxy-with-tls)."""
UNKNOWN_ORIGIN = "unknown_origin"
"""In audit rows: a web page sent the request, and its origin is not allowed (HTTP 403). Next: if the page is yours, add
its origin to `listen.allowed_origins`."""
UNKNOWN_REPLICA = "unknown_replica"
"""In audit rows: the request has a header `X-Pointsman-Peer` that no replica of this gateway has signed (HTTP 403).
Next: leave the header out; if a replica sent it, compare the clocks and `state.request_keys` of the replicas."""
TOKEN_EXPIRED = "token_expired"  # noqa: S105 - a code, no secret
"""In audit rows: an [access token](../guide/sign-in.md) has expired, is not valid yet, or has no time of expiry (HTTP
401). Next: sign in again; if new tokens are refused, compare the clocks."""
TOKEN_AUDIENCE = "token_audience"  # noqa: S105 - a code, no secret
"""In audit rows: an access token was issued for another service (HTTP 401). Next: compare `aud` of the token with
[`auth.audience`](configuration.md#auth), or let the client ask for `resource`."""
TOKEN_ISSUER = "token_issuer"  # noqa: S105 - a code, no secret
"""In audit rows: an access token is from an issuer that `auth` does not name (HTTP 401). Next: compare `iss` of the
token with `auth.issuer`, also the slash at the end."""
TOKEN_SIGNATURE = "token_signature"  # noqa: S105 - a code, no secret
"""In audit rows: the signature of an access token is wrong or missing, by a key that its issuer does not list, or by an
algorithm that is not allowed (HTTP 401). Next: sign in again; if that does not help, `pointsman doctor` checks the
issuer."""
DEFINITION_CHANGED = "definition_changed"
"""A row of kind `change`: a server changed the definition of a tool that it had listed before. Next: check that the
change is wanted."""


class GatewayError(Exception):
    """An error that the caller can act on. `text` is shown to the model; `str(error)` is it for `search`."""

    code: str

    def __init__(self, said: str, next_step: NextStep | None = None) -> None:
        self._texts = next_step.after(said) if next_step is not None else None
        super().__init__(said if self._texts is None else self._texts.search)

    def text(self, view: View) -> str:
        return str(self) if self._texts is None else self._texts.text(view)


class UnknownToolError(GatewayError):
    """The tool does not exist, or the caller may not use it; the two look the same, so that a caller cannot probe.
    Next: search with `tool_discovery`, or see [no tool](../guide/troubleshooting.md#no-tool)."""

    code = "unknown_tool"

    def __init__(self, tool_key: str, advice: str = "", next_step: NextStep = SEE_TOOLS) -> None:
        """`advice` names only tools that the caller may use."""
        shown = tool_key if len(tool_key) <= 200 else f"{tool_key[:200]}..."  # callers can send megabytes
        super().__init__(f"No tool `{shown}`. {advice}".strip(), next_step)


class InvalidArgumentsError(GatewayError):
    """The arguments do not match the tool's schema; nothing was sent. Next: correct what the message names."""

    code = "invalid_arguments"


class ServerUnavailableError(GatewayError):
    """The server is not running or not connected, or its definition of the tool has changed. A tool that the
    server's last known list does not have, or that is forbidden, is `unknown_tool`; if no list is known, all names are
    `server_unavailable`. Next: `pointsman doctor` names the reason ([a server does not
    start](../guide/troubleshooting.md#a-server-does-not-start))."""

    code = "server_unavailable"

    def __init__(self, server_id: str, reason: str, advice: str | NextStep = TRY_LATER) -> None:
        next_step = advice if isinstance(advice, NextStep) else NextStep(*[advice] * 3)
        super().__init__(f"Server `{server_id}` is not available: {reason}.", next_step)
        self.server_id = server_id
        self.reason = reason


class NotSentError(ServerUnavailableError):
    """There was no connection to send the request over, so it can be sent once there is one."""

    def __init__(self, server_id: str, reason: str, spent_s: float = 0.0, advice: str = TRY_LATER) -> None:
        """`spent_s` of the request's deadline have passed."""
        super().__init__(server_id, reason, advice)
        self.spent_s = spent_s


class CallTimeoutError(GatewayError):
    """The server did not answer in time, and the call was cancelled; it may have run all the same. Next: check before
    you repeat it; `timeouts.call_s` sets the time."""

    code = "timeout"

    def __init__(self, server_id: str, seconds: float) -> None:
        super().__init__(
            f"Server `{server_id}` did not answer within {seconds:g} s and the call was cancelled. "
            "It may have run all the same: check before you repeat it."
        )
        self.server_id = server_id


class AuditUnavailableError(GatewayError):
    """The journal cannot be written, so nothing was sent. Only in answers: there is no row. Next: free disk space or
    correct the rights of the state folder; the log has the reason."""

    code = "audit_unavailable"

    def __init__(self) -> None:
        super().__init__(
            "The call was not made, because it could not be recorded: the audit journal cannot be written. "
            "The operator finds the reason in the gateway's log; try again later."
        )


class RateLimitedError(GatewayError):
    """The token is over [its share](configuration.md#fair-shares), or the token, server or tool is at
    [its rate](configuration.md#rates); nothing was sent to a server. Next: try again after `retryAfterS` seconds, with
    fewer calls at a time."""

    code = "rate_limited"

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ConfirmationRequiredError(GatewayError):
    """The call needs [a person's yes](../concepts/confirmation.md) and has none: the client cannot be asked, nobody
    answered in time, or the answer cannot be recorded; nothing was sent. Next: the owner answers with `pointsman
    approve` or on the page, and the client repeats the same call."""

    code = "confirmation_required"


class ConfirmationRefusedError(GatewayError):
    """A person was asked [to confirm the call](../concepts/confirmation.md) and did not say yes, or the owner had
    refused the same call before; nothing was sent.
    Next: do not repeat it unless the person asks for it."""

    code = "confirmation_refused"

    def __init__(self, tool_key: str, why: str = "a person was asked to confirm it and did not") -> None:
        shown = tool_key if len(tool_key) <= 200 else f"{tool_key[:200]}..."
        super().__init__(f"The call of `{shown}` was not made: {why}. Do not repeat it unless the person asks for it.")


class QuestionRefusedError(GatewayError):
    """The server wanted to ask the user something that it may not ask: anything at all with
    [`questions: false`](configuration.md#serversid), or a visit to a URL without https. The user saw nothing of it.
    Next: check whether the call had an effect; the operator decides what the server may ask."""

    code = "question_refused"

    def __init__(self, server_id: str, reason: str) -> None:
        super().__init__(
            f"Server `{server_id}` could not go on, because it wanted to ask the user something that it may not ask. "
            f"{reason}. Check whether the call had an effect before you repeat it, or use another tool; the operator "
            f"decides with `questions` in the entry of `{server_id}`."
        )


class SignInRequiredError(GatewayError):
    """The server wants [the caller's own account](../guide/sign-in-to-servers.md#own-accounts), and there is none, or
    the server does not accept it; nothing was done. Next: the person opens the link in the message and signs in, then
    the client makes the same call again."""

    code = "sign_in_required"

    def __init__(
        self, server_id: str, reason: str, advice: str = "", *, refused: bool = False, lacks: str = ""
    ) -> None:
        """`refused`: the server does not accept a sign-in that is new. `lacks`: scopes that the account has not."""
        step = advice or "Call one of its tools to get a link at which the person signs in."
        super().__init__(f"Server `{server_id}` was not used: {reason}. {step}")
        self.server_id = server_id
        self.reason = reason
        self.refused = refused
        self.lacks = lacks


class SkillMismatchError(GatewayError):
    """A skill's file or entry is not valid, or the file is not what the entry says; it was not passed on. Next: read
    the entry again with `skills/get`; if the file still differs, the server's author must correct it."""

    code = "skill_mismatch"

    def __init__(self, server_id: str, why: str) -> None:
        super().__init__(
            f"A skill's file from server `{server_id}` is not what the skill's entry says: {why}. It was not "
            "passed on. Read the entry again with `skills/get`; if the file still differs, tell the operator."
        )
        self.server_id = server_id


class UnknownResultError(GatewayError):
    """`pointsman:result`: the [stored result](../concepts/large-results.md) does not exist or has expired, or the
    caller may not read it; the cases look the same. Next: call the tool again, if it only reads."""

    code = "unknown_result"

    def __init__(self, handle: str, *, elsewhere: bool = False) -> None:
        where = " The gateway that stored it has ended or cannot be reached." if elsewhere else ""
        super().__init__(
            f"No stored result `{handle[:64]}`.{where} Results are kept for one hour at most, for the token and "
            "project that called the tool. If the tool only reads, call it again; otherwise check first whether it "
            "must run again."
        )


class RefusedError(Exception):
    """The caller as a whole is refused. `str(error)` is shown to the person."""

    code: str
    audit_code: str | None = None  # where the audit tells more than the answer
    person: str | None = None  # whom the access token stands for, once its signature is verified: for the audit


class UnauthorizedError(RefusedError):
    """The token is missing, unknown or expired. Next: `pointsman client add NAME` sets a client up with a token ([the
    gateway refuses the client](../guide/troubleshooting.md#the-gateway-refuses-the-client)), or the client
    [signs in](../guide/troubleshooting.md#signing-in-does-not-work), where that is possible."""

    code = "unauthorized"

    def __init__(self, message: str, audit_code: str | None = None) -> None:
        super().__init__(message)
        self.audit_code = audit_code


class ForbiddenError(RefusedError):
    """The token is not valid for this project, no rule holds for the account that has
    [signed in](../guide/sign-in.md), or the web page's origin is not allowed. Next: `pointsman token list` shows what
    each token may use; `auth.claims` has the rules; `listen.allowed_origins` allows origins."""

    code = "denied"


class ScopeError(RefusedError):
    """The `scope` of an [access token](../guide/sign-in.md#scopes) does not cover the request; nothing was sent. Next:
    the client signs in again and asks for the scopes that the answer names."""

    code = "insufficient_scope"

    def __init__(self, message: str, scopes: Sequence[str]) -> None:
        """`scopes`: all that the request needs."""
        super().__init__(message)
        self.scopes = tuple(scopes)


class SignInUnavailableError(RefusedError):
    """The keys that [access tokens](../guide/sign-in.md) are signed with cannot be fetched, so they cannot be checked.
    Next: try again later; the operator finds the reason in the log."""

    code = "sign_in_unavailable"


class DownstreamError(Exception):
    """A JSON-RPC error that a downstream server answered with."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


BundledCode = Literal[
    "already_exists",
    "embedding_failed",
    "file_not_found",
    "internal_error",
    "invalid_parameters",
    "limit_reached",
    "no_embeddings",
    "not_configured",
    "not_found",
    "not_parsed",
    "not_text",
    "permission_denied",
    "rate_limited",
    "result_too_large",
    "store_unavailable",
    "timeout",
]
# The codes of our own bundled servers, as described on that page. The text of any other server never becomes a code.
BUNDLED_MEANINGS: Mapping[BundledCode, str] = {
    "already_exists": "An index of this name exists. Next: choose another name, or remove that one.",
    "embedding_failed": "`context_search`: the embedding provider did not answer. Next: try again later.",
    "file_not_found": "`read_file`: the file does not exist. Next: find its path with `grep_codebase`.",
    "internal_error": "A bug. Next: the archive's log has the traceback; please report it.",
    "invalid_parameters": "An argument is missing, has the wrong type or is out of range. Next: correct it.",
    "limit_reached": "There are too many indexes, or an index is full. Next: remove one, or raise "
    "[the limit](archive-indexes.md#limits).",
    "no_embeddings": "`context_search`: there are no vectors to compare with yet. Next: wait, or run `archive embed`.",
    "not_configured": "`roots` is missing, or one of its folders. Next: set it in the server's entry.",
    "not_found": "A collection, document, section or index does not exist. Next: list what there is.",
    "not_parsed": "`read_file`: the imports of the file cannot be parsed. Next: read it without them.",
    "not_text": "`read_file`: the file is not text.",
    "permission_denied": "`read_file`: the file must not be read ([which](archive-code.md)).",
    "rate_limited": "There were too many calls ([limits](archive-limits.md#rate-limits)). Next: try again in a minute.",
    "result_too_large": "The answer exceeds its maximum size. Next: ask for less.",
    "store_unavailable": "The store cannot be opened. Next: `pointsman archive stats` names it and the reason.",
    "timeout": "The call was not finished in time. Next: narrow the search.",
}
BUNDLED_CODES: frozenset[str] = frozenset(BUNDLED_MEANINGS)
