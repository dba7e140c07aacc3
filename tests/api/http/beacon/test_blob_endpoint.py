"""Blobs as Ethereum's clients ask for them: by height, hash and name, JSON or bytes, 410 with locators once pruned."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.api.http.http_node import HttpNode, http_server
from tests.workers.archive.archive_node import ArchiveNode, archive_policy

from holdfast.core.archive.messages import PruneBlobs
from holdfast.core.blob.framing import BLOB_BYTES
from holdfast.core.key.model import Role
from holdfast.core.policy import Policy
from holdfast.core.result import result_digest

pytestmark = pytest.mark.rule("SRV-001")
LARGE = bytes(range(256)) * 1_500
PATH = "/eth/v1/beacon/blobs/"
OCTETS = {"accept": "application/octet-stream"}


async def opened(tmp_path: Path, policy: Policy) -> ArchiveNode:
    node = ArchiveNode(policy, tmp_path)
    await node.open_with_provider()
    await node.resolve(LARGE, seals=1)
    await node.pack_final()
    return node


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[ArchiveNode]:
    node = await opened(tmp_path, archive_policy())
    yield node
    await node.kill()


@pytest.fixture
async def http(node: ArchiveNode) -> AsyncIterator[HttpNode]:
    async with http_server(node.access(), node.world) as server:
        yield HttpNode(node.world, node.engine, node.access(), server)


async def get(http: HttpNode, rest: str, **headers: str) -> httpx.Response:
    async with http.client() as client:
        return await client.get(f"{PATH}{rest}", headers=headers)


async def raw_blobs(node: ArchiveNode) -> list[bytes]:
    return [await node.raw_blob(live) for live in node.lives]


async def test_the_blobs_of_a_block_are_found_by_height_and_hash(node: ArchiveNode, http: HttpNode) -> None:
    raws, first = await raw_blobs(node), node.lives[0].blob
    assert len(raws) == 4
    for block_id in (str(first.height), f"0x{first.block_hash.hex()}"):
        answer = await get(http, block_id)
        assert answer.status_code == 200, answer.text
        assert answer.json() == {
            "execution_optimistic": False,
            "finalized": True,
            "data": [f"0x{raw.hex()}" for raw in raws],
        }
    assert http.access.served.blobs == 0  # counted where they are served


@pytest.mark.rule("SEC-001")
@pytest.mark.rule("SEC-002")
@pytest.mark.parametrize(("is_public", "without_a_key"), [(True, 200), (False, 401)])
async def test_blobs_are_for_everybody_where_reads_are_public_and_for_keys_with_their_scope(
    node: ArchiveNode, is_public: bool, without_a_key: int
) -> None:
    height = str(node.lives[0].blob.height)
    async with http_server(node.access(), node.world, public_reads=is_public) as server:
        http = HttpNode(node.world, node.engine, node.access(), server)
        answer = await get(http, height)
        assert answer.status_code == without_a_key
        if not is_public:
            told = answer.json()
            assert (told["name"], told["rule"], "data" in told) == ("Unauthorized", "SEC-001", False)
            assert "www-authenticate" in answer.headers
        for scopes, status in (((), 200), (("blob.*",), 200), (("blob.read",), 200), (("chain.*",), 403)):
            token = await http.token(Role.AUDITOR, scopes=scopes)
            answer = await get(http, height, authorization=f"Bearer {token}")
            assert answer.status_code == status, scopes
        assert answer.json()["name"] == "Forbidden"


async def test_chosen_blobs_come_in_the_order_of_the_block(node: ArchiveNode, http: HttpNode) -> None:
    raws, blobs = await raw_blobs(node), [live.blob for live in node.lives]
    hashes = [f"0x{blob.versioned_hash.hex()}" for blob in blobs]
    for query in (
        f"versioned_hashes={hashes[2]},{hashes[0]}",
        f"versioned_hashes={hashes[2]}&versioned_hashes={hashes[0]}",
    ):
        answer = await get(http, f"{blobs[0].height}?{query}")
        assert answer.json()["data"] == [f"0x{raws[0].hex()}", f"0x{raws[2].hex()}"]
    unknown = await get(http, f"{blobs[0].height}?versioned_hashes=0x01{'00' * 31}")
    assert (unknown.status_code, unknown.json()["data"]) == (200, [])


async def test_bytes_are_sent_where_the_client_prefers_them_and_ranges_only_there(
    node: ArchiveNode, http: HttpNode
) -> None:
    raw, height = b"".join(await raw_blobs(node)), node.lives[0].blob.height
    whole = await get(http, str(height), **OCTETS)
    assert (whole.status_code, whole.content) == (200, raw)
    span = (BLOB_BYTES - 10, 2 * BLOB_BYTES + 4)
    part = await get(http, str(height), **OCTETS, range=f"bytes={span[0]}-{span[1]}")
    assert (part.status_code, part.content) == (206, raw[span[0] : span[1] + 1])
    assert part.headers["content-range"] == f"bytes {span[0]}-{span[1]}/{len(raw)}"
    beyond = await get(http, str(height), **OCTETS, range=f"bytes={len(raw)}-")
    assert (beyond.status_code, beyond.content) == (416, b"")
    as_json = await get(
        http, str(height), range="bytes=0-10", accept="application/json, application/octet-stream;q=0.5"
    )
    assert (as_json.status_code, len(as_json.json()["data"])) == (200, 4)
    async with http.client() as client:
        head = await client.head(f"{PATH}{height}", headers=OCTETS)
    assert (head.status_code, head.headers["content-length"], head.content) == (200, str(len(raw)), b"")


async def test_a_block_without_blobs_is_an_empty_success_and_an_unknown_one_is_not(
    node: ArchiveNode, http: HttpNode
) -> None:
    for block_id in ("head", "finalized", "genesis", "0", "1"):
        if block_id == "finalized":
            await node.seal(3)
        answer = await get(http, block_id)
        assert (answer.status_code, answer.json()["data"]) == (200, []), block_id
    genesis = node.engine.undurable_state.chain.last_final
    assert genesis is not None
    for block_id in ("999999", "0x" + "ab" * 32, str(node.engine.undurable_state.open_height)):
        answer = await get(http, block_id)
        assert (answer.status_code, answer.json()["code"], answer.json()["name"]) == (404, 404, "NotFound")
    for rest in (
        "",
        "tail",
        "-1",
        "1.5",
        "0x12",
        "1/2",
        "1?versioned_hashes=",
        "1?versioned_hashes=0x12",
        "1?hashes=1",
    ):
        answer = await get(http, rest)
        assert (answer.status_code, answer.json()["name"]) == (400, "InvalidParams"), rest


async def test_pruned_blobs_are_gone_with_their_locators(node: ArchiveNode, http: HttpNode) -> None:
    height, locators = node.lives[0].blob.height, list[str]()
    await node.archiver.run_once()
    locators = [live.blob.locator for live in node.lives]
    assert (await get(http, str(height))).status_code == 200  # archived, and still here
    await node.pruner.run_once()
    for _ in range(2):  # from memory, then from the tables
        for headers in ({}, OCTETS):
            answer = await get(http, str(height), **headers)
            body = answer.json()
            assert (answer.status_code, body["code"], body["name"], body["rule"]) == (410, 410, "BlobPruned", "SRV-001")
            assert body["locators"] == locators
        await node.engine.wait_tables()
        await node.seal(2)
    assert all(locator for locator in locators)


@pytest.mark.rule("PRU-001")
async def test_from_the_flag_on_nothing_is_served_although_the_bytes_are_still_here(
    node: ArchiveNode, http: HttpNode
) -> None:
    await node.archiver.run_once()
    height = node.lives[0].blob.height
    await node.engine.submit(PruneBlobs(height))
    assert (len(node.packs), (await get(http, str(height))).status_code) == (1, 410)


async def test_policy_may_refuse_them_from_archived_on(tmp_path: Path) -> None:
    node = await opened(tmp_path, archive_policy(serve_archived=False))
    height = node.lives[0].blob.height
    async with http_server(node.access(), node.world) as server:
        http = HttpNode(node.world, node.engine, node.access(), server)
        assert (await get(http, str(height))).status_code == 200
        await node.archiver.run_once()
        answer = await get(http, str(height))
        assert (answer.status_code, len(answer.json()["locators"])) == (410, 4)
    await node.kill()


async def test_bytes_that_are_absent_are_gone_and_damaged_ones_are_never_sent(
    node: ArchiveNode, http: HttpNode, tmp_path: Path
) -> None:
    height = node.lives[0].blob.height
    (pack,) = (tmp_path / "blobs" / "packs").iterdir()
    raw = pack.read_bytes()
    pack.write_bytes(b"\1" + raw[1:])
    assert (await get(http, str(height))).status_code == 500
    pack.unlink()
    answer = await get(http, str(height))
    assert (answer.status_code, "locators" in answer.json()) == (410, False)


# ------------------------------------------------------------------------------------------------ engine_getBlobsV1


async def ask(http: HttpNode, params: Any, role: Role | None = Role.AUDITOR, method: str = "engine_getBlobsV1") -> Any:
    token = await http.token(role) if role is not None else None
    async with http.client(token) as client:
        request = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        return await client.post("/engine", json=request)


async def test_blobs_are_read_by_their_hashes_with_proofs(node: ArchiveNode, http: HttpNode) -> None:
    blobs = [live.blob for live in node.lives]
    hashes = [f"0x{blob.versioned_hash.hex()}" for blob in (blobs[3], blobs[1])]
    await node.engine.wait_tables()
    answer = (await ask(http, [[hashes[0], "0x01" + "ee" * 31, hashes[1]]])).json()
    raws = await raw_blobs(node)
    assert answer == {
        "jsonrpc": "2.0",
        "id": 7,
        "result": [
            {"blob": f"0x{raws[3].hex()}", "proof": f"0x{blobs[3].proof.hex()}"},
            None,
            {"blob": f"0x{raws[1].hex()}", "proof": f"0x{blobs[1].proof.hex()}"},
        ],
    }
    await node.archiver.run_once()
    await node.pruner.run_once()
    await node.engine.wait_tables()
    assert (await ask(http, [hashes])).json()["result"] == [None, None]


async def test_an_auditors_key_is_needed_and_at_most_128_hashes(node: ArchiveNode, http: HttpNode) -> None:
    known = "0x01" + "00" * 31
    assert (await ask(http, [[known]], None)).status_code == 401
    assert (await ask(http, [[known]], Role.REQUESTER)).status_code == 403
    assert (await ask(http, [[known] * 128])).json()["result"] == [None] * 128
    assert (await ask(http, [[known] * 129])).json()["error"]["code"] == -38004
    malformed: list[Any] = [[], [known], {"hashes": []}, [["0x12"]], [[1]], [[known], 1]]
    for params in malformed:
        assert (await ask(http, params)).json()["error"]["code"] == -32602
    assert (await ask(http, [[]], method="engine_newPayloadV3")).json()["error"]["code"] == -32601
    digest = result_digest(LARGE)
    assert digest in node.blobs.held
