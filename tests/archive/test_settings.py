"""What the archive understands of its environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from pointsman.archive.indexes.indexes import IndexLimits
from pointsman.archive.settings import SettingsError, read_settings


def test_an_empty_environment_means_no_database_and_no_roots() -> None:
    settings = read_settings({})
    assert (settings.database, settings.roots) == (None, {})


def test_roots_and_database_are_read_as_paths() -> None:
    settings = read_settings({"SEARCH_DB_PATH": "/db", "POINTSMAN_ARCHIVE_ROOTS": '{"app": "/srv/app"}'})
    assert (settings.database, settings.roots) == (Path("/db"), {"app": Path("/srv/app")})


@pytest.mark.parametrize("roots", ["{", "[]", "null", '{"app": 1}', '{"app": ""}'])
def test_roots_of_another_shape_are_refused_with_an_example(roots: str) -> None:
    with pytest.raises(SettingsError, match=r'POINTSMAN_ARCHIVE_ROOTS .* \{"app": "/srv/app"\}'):
        read_settings({"POINTSMAN_ARCHIVE_ROOTS": roots})


def test_limits_that_are_not_named_keep_their_defaults() -> None:
    settings = read_settings({"POINTSMAN_ARCHIVE_INDEX_LIMITS": '{"documents": 5}'})
    assert settings.index_limits == IndexLimits(documents=5)
    assert settings.rate_limits == {"context_search": 30, "read_file": 100, "grep_codebase": 60}


@pytest.mark.parametrize("variable", ["POINTSMAN_ARCHIVE_RATE_LIMITS", "POINTSMAN_ARCHIVE_INDEX_LIMITS"])
@pytest.mark.parametrize("value", ["{", "[]", '{"documents": "5"}', '{"documents": true}', '{"documents": -1}'])
def test_limits_of_another_shape_are_refused_with_an_example(variable: str, value: str) -> None:
    with pytest.raises(SettingsError, match=rf'^{variable}.* like \{{"'):
        read_settings({variable: value})
