"""One gateway a module, and one browser a worker."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator

import pytest

from tests.router.page.browser import CHROMIUM_ARGUMENTS, Screens
from tests.router.page.owner import Owner, running_page


@pytest.fixture(scope="module")
async def owner(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Owner]:
    """A gateway of this module with a page, and its owner signed in."""
    async with running_page(tmp_path_factory.mktemp("page")) as signed_in:
        yield signed_in


@pytest.fixture(scope="module")
async def screens(owner: Owner) -> AsyncIterator[Screens]:
    """A browser that is signed in to the gateway of this module."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("Chromium is not installed: `make browser` installs it on Debian and Ubuntu")
    playwright = pytest.importorskip("playwright.async_api")
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=program, args=CHROMIUM_ARGUMENTS)
        try:
            yield Screens(browser, owner)
        finally:
            await browser.close()
