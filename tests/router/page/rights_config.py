"""A configuration that a person has written, with projects, tokens and comments."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.router.conftest import WORKSHOP
from tests.router.page.owner import HOSTILE, Owner, running_page

COMMENTED = """\
# mine
servers:
  shop:  # the workshop
    command: {python}
    args: [-S, {program}, {trace}]  # traced
    tool_permissions: {{erase: false}}  # dangerous
    projects: [attic]  # only here
  plain:
    command: {python}
    args: [-S, {program}, {trace}]
projects:
  attic:  # under the roof
    name: {hostile}
  cellar: {{}}  # empty
tokens:
  # everything
  test: {{sha256: "{digest}", projects: ["*"], servers: ["*"]}}
  guest:
    sha256: {other}
    projects: [attic]  # nothing else
    servers: [shop]
    expires: 2031-05-04  # a holiday
"""
SECRET = "ptm_guest"


def commented_text(folder: Path) -> str:
    return COMMENTED.format(
        python=sys.executable,
        program=WORKSHOP,
        trace=folder / "trace",
        hostile=json.dumps(HOSTILE),
        digest=hashlib.sha256(b"ptm_x").hexdigest(),
        other=hashlib.sha256(SECRET.encode()).hexdigest(),
    )


@asynccontextmanager
async def commented(folder: Path) -> AsyncIterator[Owner]:
    """A gateway with this file, once its servers run and have listed their tools."""
    async with running_page(folder, {}) as owner:
        owner.gateway.config_file.write_text(commented_text(folder))
        await owner.gateway.until_logged("server shop is running")
        await owner.gateway.until_logged("server plain is running")
        assert (await owner.get("/page/servers/shop")).status_code == 200
        yield owner
