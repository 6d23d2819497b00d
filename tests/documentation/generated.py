"""Writes the generated parts of the pages: `make docs`. A generated part stands between two comments of its page.

    <!-- generated: configuration listen -->
    ...
    <!-- end -->

The words after `generated:` are a key of `SOURCES` and its arguments. Everything else on a page is written by hand.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.documentation import clients, commands, configuration, errors, metrics

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^<!-- generated: (\w[^\n]*?) -->\n(.*?)^<!-- end -->$", re.DOTALL | re.MULTILINE)
SOURCES: Mapping[str, Callable[..., str]] = {
    "configuration": configuration.keys,
    "values": configuration.values,
    "variables": configuration.variables,
    "commands": commands.overview,
    "command": commands.command,
    "clients": clients.overview,
    "client": clients.client,
    "metrics": metrics.of_gateway,
    "metrics-of-search-service": metrics.of_search_service,
    "errors": errors.of_gateway,
    "errors-of-archive": errors.of_archive,
    "errors-of-cloud-search": errors.of_cloud_search,
    "errors-of-search-service": errors.of_search_service,
}


def pages() -> list[Path]:
    """The pages with a generated part."""
    found = sorted((ROOT / "docs").rglob("*.md"))
    return [page for page in found if "<!-- generated: " in page.read_text(encoding="utf-8")]


def names(page: Path) -> list[str]:
    """What is generated on a page."""
    return [match[1] for match in BLOCK.finditer(page.read_text(encoding="utf-8"))]


def rewritten(text: str) -> str:
    """The text of a page with all generated parts made anew."""

    def block(match: re.Match[str]) -> str:
        source, *arguments = match[1].split()
        return f"<!-- generated: {match[1]} -->\n{SOURCES[source](*arguments).strip()}\n<!-- end -->"

    return BLOCK.sub(block, text)


def main() -> None:
    for page in pages():
        before = page.read_text(encoding="utf-8")
        after = rewritten(before)
        if after != before:
            page.write_text(after, encoding="utf-8")
            sys.stdout.write(f"{page.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
