"""The page as a person sees it: it loads, is live, shows a job's custody, survives the node's death, is accessible.

One browser and one node for all of it: starting them takes longer than looking.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect
from tests.browser.conftest import ROOT, watched_page
from tests.loopback_ports import free_port
from tests.stories.node_process import NodeProcess

from holdfast.client.node_socket import NodeSocket
from holdfast.core.key.model import secret_hash

pytestmark = [pytest.mark.browser, pytest.mark.rule("OBS-001")]
WITHIN_MS = 60_000
PAGES = ("", "jobs", "providers", "chain", "block/1", "archive", "evidence", "keys", "alerts", "docs", "nowhere")
JOB = {"kind": "AI", "spec": {"model": "nobody-has-it", "prompt": "hi"}}
AXE = ROOT / ".page-build" / "node_modules" / "axe-core" / "axe.min.js"
BROADCASTING = ("fence", "as-run", "aired", "playout")


class ServedNode:
    """A node process with the page at a loopback port."""

    def __init__(self, data: Path, port: int) -> None:
        self.data, self.url = data, f"http://127.0.0.1:{port}/"
        environ = {
            "HOLDFAST_HTTP__PORT": str(port),
            "HOLDFAST_HTTP__ENABLED": "true",
            "HOLDFAST_POLICY__CHAIN__BLOCK_MS": "300",
            "HOLDFAST_ARCHIVE__PROVIDER": "none",
        }
        self.process = NodeProcess(data, environ=environ)

    async def call(self, method: str, **params: object) -> Any:
        async with NodeSocket(self.data, 30) as node:
            return await node.call(method, **params)

    async def token(self, role: str) -> str:
        id_, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
        await self.call("key.createKey", id=id_, secret=secret_hash(secret.encode()).hex(), role=role)
        return f"hf_{id_}_{secret}"

    async def enqueue(self) -> str:
        receipt = await self.call("cap.enqueue", payload=JOB, max_fee=7, caller="alice")
        return str(receipt["task_id"])


@pytest.fixture
async def node(tmp_path: Path, built_page: Path) -> AsyncIterator[ServedNode]:
    served = ServedNode(tmp_path / "node", free_port())
    await served.process.up()
    async with NodeSocket(served.data, 30) as socket:
        await socket.mint(bytes(32), "alice", 1_000)
    yield served
    await served.process.kill()


def test_the_page_is_small(built_page: Path) -> None:
    assert sum(path.stat().st_size for path in built_page.iterdir()) <= 200_000


async def test_a_person_sees_and_runs_a_node_through_its_life_and_death(node: ServedNode, browser: Browser) -> None:
    token = await node.token("operator")
    async with watched_page(browser) as (page, faults):
        await _sees_the_node_live(node, page)
        task, other = await node.enqueue(), await node.enqueue()
        await expect(page.locator("a.tile").first).to_contain_text("2", timeout=WITHIN_MS)
        await _sees_little_of_a_private_job_without_a_key(node, page, task)
        await _signs_in(page, token)
        await _cancels_one_job_and_then_all_matches(node, page, task, other)
        await _finds_by_height_and_by_the_beginning_of_an_id(page, task)
        await _reads_examples_that_run(node, page, token)
        assert faults == []
        await _sees_every_page(page)
        assert faults == []
        await _sees_the_node_die_and_come_back(node, page)
    async with watched_page(browser, "light") as (page, faults):
        await page.goto(node.url)
        await _sees_every_page(page, ["color-contrast"])
        assert faults == []


async def _sees_the_node_live(node: ServedNode, page: Page) -> None:
    await page.goto(node.url)
    await expect(page.get_by_role("heading", name="Nothing needs a hand.")).to_be_visible(timeout=WITHIN_MS)
    await expect(page.locator("header [role=status]")).to_have_text("● live")
    await expect(page.get_by_text("No provider has registered yet")).to_be_visible()


async def _sees_little_of_a_private_job_without_a_key(node: ServedNode, page: Page, task: str) -> None:
    await page.goto(f"{node.url}#/job/{task}")
    await expect(page.get_by_text("private")).to_be_visible(timeout=WITHIN_MS)
    await expect(page.get_by_text("nobody-has-it")).to_have_count(0)
    await expect(page.get_by_role("button", name="Cancel …")).to_have_count(0)


async def _signs_in(page: Page, token: str) -> None:
    await page.get_by_role("button", name="Sign in").click()
    await page.get_by_label("Token").fill(token)
    await page.get_by_label("Token").press("Enter")
    await expect(page.get_by_role("button", name="Sign out")).to_be_visible(timeout=WITHIN_MS)


async def _cancels_one_job_and_then_all_matches(node: ServedNode, page: Page, task: str, other: str) -> None:
    await page.goto(f"{node.url}#/jobs?status=QUEUED")
    await page.get_by_role("link", name=task[:8]).click()
    await expect(page.get_by_text("Job held by the queue")).to_be_visible(timeout=WITHIN_MS)
    await expect(page.get_by_text("nobody-has-it")).to_be_visible()
    await expect(page.get_by_text("None of 0 providers can take it now.")).to_be_visible(timeout=WITHIN_MS)
    await page.get_by_role("button", name="Cancel …").click()
    await page.get_by_role("button", name="No", exact=True).click()
    assert (await node.call("cap.getJob", task_id=task))["job"]["state"] == "QUEUED", "nothing without a yes"
    await page.get_by_role("button", name="Cancel …").click()
    await page.get_by_role("button", name="Yes, cancel").click()
    await expect(page.get_by_role("heading", name="Cancelled")).to_be_visible(timeout=WITHIN_MS)

    await page.goto(f"{node.url}#/jobs?status=QUEUED")
    await expect(page.get_by_role("link", name=other[:8])).to_be_visible(timeout=WITHIN_MS)
    gone = page.get_by_role("link", name=task[:8])
    await expect(gone).to_have_count(0, timeout=WITHIN_MS)  # a list follows a moment later
    await page.get_by_role("button", name="Cancel all matches …").click()
    await expect(page.get_by_role("dialog")).to_contain_text(other[:8], timeout=WITHIN_MS)
    await page.get_by_role("button", name="Yes, cancel").click()
    await expect(page.get_by_text("Cancel: 1 of 1 job")).to_be_visible(timeout=WITHIN_MS)
    assert "status=QUEUED" in page.url, "the filter stays"
    assert (await node.call("cap.getJob", task_id=other))["job"]["state"] == "CANCELLED"


async def _finds_by_height_and_by_the_beginning_of_an_id(page: Page, task: str) -> None:
    for text, heading in (("1", "Block 1"), (task[:10], "Cancelled")):
        await page.keyboard.press("/")
        await page.keyboard.type(text)
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name=heading)).to_be_visible(timeout=WITHIN_MS)
        await page.locator("main").focus()


async def _reads_examples_that_run(node: ServedNode, page: Page, token: str) -> None:
    """What the API's page shows is pasted into a shell and into Python."""
    await page.goto(f"{node.url}docs")
    await expect(page.get_by_text("methods", exact=False).first).to_be_visible(timeout=WITHIN_MS)
    environ = os.environ | {"HOLDFAST_TOKEN": token}
    for method, program in (("chain.getBlock", "curl"), ("cap.listJobs", "python"), ("key.listKeys", "python")):
        entry = page.locator("details.card", has=page.get_by_text(method, exact=True))
        text = await entry.locator(f"[data-example={program}]").text_content() or ""
        command = ["sh", "-c", text] if program == "curl" else [sys.executable, "-c", text]
        ran = await asyncio.to_thread(subprocess.run, command, env=environ, capture_output=True, text=True, check=False)
        assert "result" in ran.stdout, (text, ran)


async def _sees_every_page(page: Page, checks: list[str] | None = None) -> None:
    await page.evaluate(AXE.read_text())
    for name in PAGES:
        await page.evaluate(f"location.hash = '#/{name}'")
        await expect(page.locator("main > *").first).to_be_visible(timeout=WITHIN_MS)
        await expect(page.locator(".loading")).to_have_count(0, timeout=WITHIN_MS)
        assert await _axe(page, checks) == [], name
        seen = (await page.locator("main").inner_text()).lower()
        assert name == "docs" or not [word for word in BROADCASTING if word in seen]


async def _sees_the_node_die_and_come_back(node: ServedNode, page: Page) -> None:
    await page.goto(node.url)
    status = page.locator("header [role=status]")
    await expect(status).to_have_text("● live", timeout=WITHIN_MS)
    await node.process.kill()
    await expect(status).to_have_text("▲ no connection", timeout=WITHIN_MS)
    await expect(page.get_by_text("The node does not answer.")).to_be_visible()
    await node.process.up()
    await expect(status).to_have_text("● live", timeout=WITHIN_MS)
    await node.enqueue()
    await expect(page.locator("a.tile").first).to_contain_text("1", timeout=WITHIN_MS)


async def _axe(page: Page, checks: list[str] | None) -> list[str]:
    """Serious faults that axe-core finds, by all its rules or by these: missing names, contrast, keyboard traps."""
    options = json.dumps({"resultTypes": ["violations"]} | ({"runOnly": checks} if checks else {}))
    found = json.loads(await page.evaluate(f"axe.run({options}).then((result) => JSON.stringify(result.violations))"))
    return [
        f"{each['id']}: {each['nodes'][0]['html'][:120]}" for each in found if each["impact"] in ("serious", "critical")
    ]
