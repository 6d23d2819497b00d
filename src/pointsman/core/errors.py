"""The errors that cross layers, each with a code for programs, a sentence for people and the next step for the model.

GatewayError                 the caller can act on it; shown to the model
  UnknownToolError, InvalidArgumentsError, ServerUnavailableError (NotSentError), CallTimeoutError,
  AuditUnavailableError, RateLimitedError, UnknownResultError, SkillMismatchError
RefusedError                 the caller as a whole is refused; shown to the person
  UnauthorizedError, ForbiddenError
DownstreamError              a JSON-RPC error that a server answered with
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

TRY_LATER = "Try again later, or use another tool."
MAY_HAVE_RUN = "The call had been sent and may have run: check before you repeat it, unless the tool only reads."

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


class GatewayError(Exception):
    """An error that the caller can act on. `text` is shown to the model; `str(error)` is it for `search`."""

    code: str

    def __init__(self, said: str, next_step: NextStep | None = None) -> None:
        self._texts = next_step.after(said) if next_step is not None else None
        super().__init__(said if self._texts is None else self._texts.search)

    def text(self, view: View) -> str:
        return str(self) if self._texts is None else self._texts.text(view)


class UnknownToolError(GatewayError):
    """Also raised for tools that exist but that this caller may not use: the two must be indistinguishable."""

    code = "unknown_tool"

    def __init__(self, tool_key: str, advice: str = "", next_step: NextStep = SEE_TOOLS) -> None:
        """`advice` names only tools that the caller may use."""
        shown = tool_key if len(tool_key) <= 200 else f"{tool_key[:200]}..."  # callers can send megabytes
        super().__init__(f"No tool `{shown}`. {advice}".strip(), next_step)


class InvalidArgumentsError(GatewayError):
    code = "invalid_arguments"


class ServerUnavailableError(GatewayError):
    code = "server_unavailable"

    def __init__(self, server_id: str, reason: str, advice: str | NextStep = TRY_LATER) -> None:
        next_step = advice if isinstance(advice, NextStep) else NextStep(*[advice] * 3)
        super().__init__(f"Server `{server_id}` is not available: {reason}.", next_step)
        self.server_id = server_id
        self.reason = reason


class NotSentError(ServerUnavailableError):
    """There was no connection to send the request over, so it can be sent once there is one."""


class CallTimeoutError(GatewayError):
    code = "timeout"

    def __init__(self, server_id: str, seconds: float) -> None:
        super().__init__(
            f"Server `{server_id}` did not answer within {seconds:g} s and the call was cancelled. "
            "It may have run all the same: check before you repeat it."
        )
        self.server_id = server_id


class AuditUnavailableError(GatewayError):
    code = "audit_unavailable"

    def __init__(self) -> None:
        super().__init__(
            "The call was not made, because it could not be recorded: the audit journal cannot be written. "
            "The operator finds the reason in the gateway's log; try again later."
        )


class RateLimitedError(GatewayError):
    """A call over the share of its token. It was not sent to a server."""

    code = "rate_limited"

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class SkillMismatchError(GatewayError):
    code = "skill_mismatch"

    def __init__(self, server_id: str, why: str) -> None:
        super().__init__(
            f"A skill's file from server `{server_id}` is not what the skill's entry says: {why}. It was not "
            "passed on. Read the entry again with `skills/get`; if the file still differs, tell the operator."
        )
        self.server_id = server_id


class UnknownResultError(GatewayError):
    """Also raised for results of other callers: the two must be indistinguishable."""

    code = "unknown_result"

    def __init__(self, handle: str) -> None:
        super().__init__(
            f"No stored result `{handle[:64]}`. Results are kept for one hour at most, for the token and project that "
            "called the tool. If the tool only reads, call it again; otherwise check first whether it must run again."
        )


class RefusedError(Exception):
    """The caller as a whole is refused. `str(error)` is shown to the person."""

    code: str


class UnauthorizedError(RefusedError):
    code = "unauthorized"


class ForbiddenError(RefusedError):
    code = "denied"


class DownstreamError(Exception):
    """A JSON-RPC error that a downstream server answered with."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


# The codes of our own bundled servers. The text of any other server never becomes a code of ours.
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
BUNDLED_CODES: frozenset[str] = frozenset(get_args(BundledCode))
