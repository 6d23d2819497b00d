"""The page on the audit names every field, kind and outcome of a row."""

from __future__ import annotations

import re
from pathlib import Path

from pointsman.router.audit.rows import ENDINGS, KINDS, Row

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "audit.md").read_text(encoding="utf-8")


def test_every_field_kind_and_outcome_of_a_row_is_documented() -> None:
    for name in (*Row.__struct_encode_fields__, *KINDS, *ENDINGS):
        assert re.search(rf"`{name}`", PAGE), name
