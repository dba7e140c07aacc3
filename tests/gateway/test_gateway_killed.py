"""kill -9 at random moments: every upload that was answered is there afterwards, whole and findable."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.counts import FULL, counts
from tests.gateway.gateway_process import GatewayProcess

from holdfast.gateway.key_file import KeyFile

CLIENTS = 4


@pytest.fixture(params=["folder", "seaweedfs"])
def process(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GatewayProcess]:
    environment = {}
    if request.param == "seaweedfs":
        server: Any = request.getfixturevalue("seaweedfs")
        environment = {
            **server.environment,
            "HOLDFAST_GATEWAY__OBJECTS": f"{server.bucket()}/archive",
            "HOLDFAST_GATEWAY__ENDPOINT": server.endpoint,
        }
    made = GatewayProcess(tmp_path, **environment)
    yield made
    made.kill()


async def keep_uploading(url: str, token: str, name: str, answered: dict[str, bytes]) -> None:
    """Until the gateway is gone; sizes on both sides of what is spooled to disk."""
    chance = random.Random(name)
    async with httpx.AsyncClient(base_url=url, timeout=30, verify=False) as http:
        for number in range(10_000):
            data = f"{name} {number} ".encode() + os.urandom(chance.choice((10, 5_000, 400_000)))
            files: dict[str, Any] = {"file": ("x", data, "a/b"), "tags": (None, '[{"key":"story","value":"killed"}]')}
            try:
                answer = await http.post("/upload", files=files, headers={"authorization": f"Bearer {token}"})
            except httpx.TransportError:
                return
            assert answer.status_code == 200, answer.text
            answered[answer.json()["dataitem_id"]] = data


async def one_life(process: GatewayProcess, token: str, life: int, answered: dict[str, bytes]) -> None:
    """Uploads until some are answered and others are on their way; then the kill."""
    chance, before = random.Random(life), len(answered)
    clients = [
        asyncio.create_task(keep_uploading(process.url, token, f"{life}.{each}", answered)) for each in range(CLIENTS)
    ]
    wanted = before + chance.randrange(1, 30)
    while len(answered) < wanted:
        await asyncio.sleep(chance.random() / 50)
    process.kill()
    await asyncio.gather(*clients)


async def found_by_tag(http: httpx.AsyncClient) -> set[str]:
    found: set[str] = set()
    cursor = None
    while True:
        query = {"filters": [{"key": "story", "value": "killed"}], "first": 100, "after": cursor}
        page = (await http.post("/tags/query", json=query)).json()
        found |= {item["dataitem_id"] for item in page["items"]}
        if (cursor := page["page_info"]["next_cursor"]) is None:
            return found


@pytest.mark.rule("ARC-004")
async def test_kill_9_loses_no_upload_that_was_answered(process: GatewayProcess, request: Any) -> None:
    _, token = KeyFile(process.data / "gateway" / "keys.json").create(
        1, "", is_admin=False, quota_bytes=None, quota_items=None
    )
    answered: dict[str, bytes] = {}
    lives = counts(2, 12) if "folder" in request.node.name else counts(1, 6)
    for life in range(lives):
        await asyncio.to_thread(process.start)
        await one_life(process, token, life, answered)
    await asyncio.to_thread(process.start)
    async with httpx.AsyncClient(base_url=process.url, timeout=60, verify=False) as http:
        for id_, data in answered.items():
            assert (await http.get(f"/resolve/{id_}")).content == data, id_
        for _ in range(500):  # the index is repaired while it serves
            if answered.keys() <= (found := await found_by_tag(http)):
                break
            await asyncio.sleep(0.02)
        assert answered.keys() <= found
    assert await asyncio.to_thread(process.stop) == 0
    if FULL:
        scrubbed = await asyncio.to_thread(process.run, "scrub")
        assert scrubbed.returncode == 0, scrubbed.stdout + scrubbed.stderr
