"""Which program a configuration file is for: the gateway, the search service, or both."""

from __future__ import annotations

import re
from pathlib import Path

from ruamel.yaml.nodes import MappingNode, ScalarNode

from pointsman.config.errors import ConfigError
from pointsman.config.loader import read_text
from pointsman.config.yaml.tree import compose_pasted

SEARCH_API_SECTION = "search_api"
_READ_BY_SEARCH_API = frozenset({SEARCH_API_SECTION, "tokens", "projects", "limits"})
_TOP_LEVEL_KEY = re.compile(r"^[\"']?(\w+)[\"']?[ \t]*:", re.MULTILINE)


def is_for_search_api(path: Path) -> bool:
    """Whether the file has the search service's section, valid or not."""
    return SEARCH_API_SECTION in _sections(path)


def is_only_for_search_api(path: Path) -> bool:
    """Whether the file has the search service's section and nothing that only a gateway reads, such as `servers`."""
    sections = _sections(path)
    return SEARCH_API_SECTION in sections and sections <= _READ_BY_SEARCH_API


def _sections(path: Path) -> frozenset[str]:
    """The top-level keys of a file that has the search service's section; none of any other file."""
    try:
        text = read_text(path)
    except ConfigError:  # reported when the file is loaded
        return frozenset()
    if SEARCH_API_SECTION not in text:
        return frozenset()  # the usual case: a large file takes long to compose
    try:
        root = compose_pasted(text, str(path))
    except ConfigError:
        return frozenset(_TOP_LEVEL_KEY.findall(text))
    if not isinstance(root, MappingNode):
        return frozenset()
    return frozenset(str(key.value) for key, _ in root.value if isinstance(key, ScalarNode))
