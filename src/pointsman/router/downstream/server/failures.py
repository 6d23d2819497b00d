"""What a caller is told when a request to a server failed: the reason, and whether it may have run. Pure."""

from __future__ import annotations

from pointsman.core.errors import (
    NOT_RUN,
    TRY_LATER,
    CallTimeoutError,
    GatewayError,
    NotSentError,
    ServerUnavailableError,
    SignInRequiredError,
)
from pointsman.router.downstream.connection import (
    BudgetExceededError,
    CallNotSentError,
    CredentialRefusedError,
    ScopeNeededError,
    SignInNeededError,
)


def as_gateway_error(
    server_id: str,
    error: Exception,
    limit_s: float,
    advice: str = TRY_LATER,
    spent_s: float = 0.0,
    *,
    own: bool,
) -> GatewayError:
    """`own`: the connection is one caller's, so that a sign-in is that caller's matter; else it is the operator's.

    `advice` is for a request that was sent.
    """
    match error:
        case TimeoutError():
            return CallTimeoutError(server_id, limit_s)
        case BudgetExceededError():
            return ServerUnavailableError(server_id, str(error), "Ask it for less, or use another tool.")
        case SignInNeededError() if own:
            return SignInRequiredError(server_id, str(error), refused=error.refused, lacks=error.lacks)
        case CallNotSentError():
            return NotSentError(server_id, str(error), spent_s, _step_for(error))
        case ScopeNeededError() | CredentialRefusedError():
            return ServerUnavailableError(server_id, str(error), NOT_RUN)
    return ServerUnavailableError(server_id, str(error), advice)


def _step_for(error: CallNotSentError) -> str:
    return NOT_RUN if isinstance(error, SignInNeededError) and error.person else TRY_LATER
