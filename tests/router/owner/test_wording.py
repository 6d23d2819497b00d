"""What the gateway says to models has no step that only a model can take, once it is said to the owner."""

from __future__ import annotations

import pytest

from pointsman.catalog.lists.list_cache import Gap
from pointsman.catalog.results import gap_notices
from pointsman.core.errors import (
    SEE_TOOLS,
    TRY_LATER,
    AuditUnavailableError,
    ServerUnavailableError,
)
from pointsman.router.owner.wording import for_owner, result_for_owner

GAPS: tuple[Gap, ...] = ("starting", "failed", "timeout", "restarting", "cut", "unreadable")


def for_models_only(text: str) -> bool:
    return any(words in text.lower() for words in ("operator", "use other tools", "another tool", "tool_discovery"))


@pytest.mark.parametrize(
    "text",
    [
        *(" ".join(gap_notices({"shop": gap})) for gap in GAPS),
        *SEE_TOOLS,
        TRY_LATER,
        str(AuditUnavailableError()),
        str(ServerUnavailableError("shop", "it failed")),
    ],
)
def test_no_step_of_a_model_remains(text: str) -> None:
    assert not for_models_only(for_owner(text))


def test_only_the_gateway_s_own_errors_are_reworded() -> None:
    def result(code: str) -> dict[str, object]:
        error = {"code": code, "message": TRY_LATER}
        return {"content": [{"type": "text", "text": TRY_LATER}], "structuredContent": {"error": error}}

    assert result_for_owner(result("tool_error")) == result("tool_error")
    assert "another tool" not in str(result_for_owner(result("server_unavailable")))
