"""The page as a person sees it: it loads, is live, shows a job's custody, survives the node's death, is accessible."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect
from tests.loopback_ports import free_port
from tests.stories.node_process import NodeProcess

from holdfast.client.node_socket import NodeSocket
from holdfast.core.key.model import secret_hash

pytestmark = [pytest.mark.browser, pytest.mark.rule("OBS-001")]
WITHIN_MS = 20_000
PAGES = ("", "jobs", "providers", "chain", "archive", "evidence", "keys", "alerts", "docs")
JOB = {"kind": "AI", "spec": {"model": "nobody-has-it", "prompt": "hi"}}


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


def faults(page: Page) -> list[str]:
    return page.faults  # type: ignore[attr-defined, no-any-return]


async def test_a_person_sees_the_node_live_and_a_job_through_its_life(node: ServedNode, page: Page) -> None:
    await page.goto(node.url)
    await expect(page.get_by_role("heading", name="Nothing needs a hand.")).to_be_visible(timeout=WITHIN_MS)
    await expect(page.get_by_role("status")).to_have_text("● live")

    task = await node.enqueue()
    await expect(page.locator("a.tile").first).to_contain_text("1", timeout=WITHIN_MS)

    await page.goto(f"{node.url}#/job/{task}")
    await expect(page.get_by_text("private")).to_be_visible(timeout=WITHIN_MS)
    await expect(page.get_by_text("nobody-has-it")).to_have_count(0)

    await page.get_by_role("button", name="Sign in").click()
    await page.get_by_label("Token").fill(await node.token("operator"))
    await page.get_by_label("Token").press("Enter")
    await expect(page.get_by_role("button", name="Sign out")).to_be_visible(timeout=WITHIN_MS)
    await page.goto(f"{node.url}#/jobs?status=QUEUED")
    await page.get_by_role("link", name=task[:8]).click()
    await expect(page.get_by_text("Job held by the queue")).to_be_visible(timeout=WITHIN_MS)
    await expect(page.get_by_text("nobody-has-it")).to_be_visible()

    page.on("dialog", lambda dialog: dialog.accept())
    await page.get_by_role("button", name="Cancel …").click()
    await expect(page.get_by_role("heading", name="Cancelled")).to_be_visible(timeout=WITHIN_MS)
    await page.keyboard.press("/")
    await page.keyboard.type("1")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="Block 1")).to_be_visible(timeout=WITHIN_MS)
    assert [fault for fault in faults(page) if "404" not in fault and "401" not in fault] == []


async def test_every_page_loads_without_a_fault_and_without_leaving_the_machine(node: ServedNode, page: Page) -> None:
    await page.goto(node.url)
    await page.get_by_role("button", name="Sign in").click()
    await page.get_by_label("Token").fill(await node.token("operator"))
    await page.get_by_label("Token").press("Enter")
    await expect(page.get_by_role("button", name="Sign out")).to_be_visible(timeout=WITHIN_MS)
    for name in PAGES:
        await page.goto(f"{node.url}#/{name}")
        await expect(page.locator("main > *").first).to_be_visible(timeout=WITHIN_MS)
        assert await _axe(page) == [], name
    assert faults(page) == []


async def test_a_killed_node_shows_as_such_and_comes_back(node: ServedNode, page: Page) -> None:
    await page.goto(node.url)
    await expect(page.get_by_role("status")).to_have_text("● live", timeout=WITHIN_MS)
    await node.process.kill()
    await expect(page.get_by_role("status")).to_have_text("▲ no connection", timeout=WITHIN_MS)
    await node.process.up()
    await expect(page.get_by_role("status")).to_have_text("● live", timeout=WITHIN_MS)
    task = await node.enqueue()
    await expect(page.locator("a.tile").first).to_contain_text("1", timeout=WITHIN_MS)
    assert task


async def _axe(page: Page) -> list[str]:
    """Serious faults that axe-core finds: missing names, contrast, keyboard traps."""
    script = Path(__file__).parent.parent.parent / ".page-build" / "node_modules" / "axe-core" / "axe.min.js"
    assert script.exists(), "axe-core comes with the page's packages: make page"
    await page.evaluate(script.read_text())
    found = json.loads(await page.evaluate("axe.run().then((result) => JSON.stringify(result.violations))"))
    return [
        f"{each['id']}: {each['nodes'][0]['html'][:120]}" for each in found if each["impact"] in ("serious", "critical")
    ]
