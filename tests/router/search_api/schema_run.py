"""`python -m tests.router.search_api.schema_run URL TOKEN MODE`: schemathesis against a running service.

A process of its own: Hypothesis and schemathesis read and parse sources, which must not happen in two threads.
"""

from __future__ import annotations

import sys
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings

EXAMPLES = 60  # of searches


def ask_all(url: str, token: str, mode: str) -> int:
    """How many requests were made; raises what schemathesis finds."""
    asked = 0
    for found in schemathesis.openapi.from_url(f"{url}/openapi.json").get_all_operations():
        operation = found.ok()  # type: ignore[union-attr]  # or there is no such method, and it ends here
        if mode == "negative" and operation.method != "post":
            continue  # takes nothing that could be wrong

        @settings(
            max_examples=EXAMPLES if operation.method == "post" else 3,
            phases=[Phase.explicit, Phase.generate],
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=schemathesis.GenerationMode(mode)))
        def ask(case: Any) -> None:
            nonlocal asked
            asked += 1
            case.call_and_validate(headers={"Authorization": f"Bearer {token}"})

        ask()
    return asked


if __name__ == "__main__":
    print(f"{ask_all(*sys.argv[1:])} requests")
