"""`GET /v1/packages/…`: a follower syncs from a node over HTTP; operators and auditors alone may ask (SYN-001)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.api.http.http_node import HttpNode, http_server, name_of
from tests.loopback_ports import free_port
from tests.workers.archive.archive_node import archive_policy
from tests.workers.sync.sync_nodes import FollowerNode, ProposerNode

from holdfast.adapters.peers.http_peers import HttpPeers
from holdfast.adapters.peers.local_network import LocalNetwork
from holdfast.api.http.v1.follower_server import FollowerServer
from holdfast.core.base.errors import Unavailable
from holdfast.core.base.values import Height
from holdfast.core.blob.model import BlobStatus
from holdfast.core.key.model import Role
from holdfast.core.sync.followed import BytesStatus
from holdfast.engine.queries.archive.stored_blobs import stored_blobs
from holdfast.workers.sync.blob_repair import BlobRepair

SECRET = b"a prompt that nobody else may read"


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[ProposerNode]:
    node = ProposerNode(archive_policy(), tmp_path / "owner", LocalNetwork())
    await node.open_with_provider()
    yield node
    await node.kill()


@pytest.fixture
async def http(node: ProposerNode) -> AsyncIterator[HttpNode]:
    access = node.access()
    access.packages = node.service
    async with http_server(access, node.world) as server:
        yield HttpNode(node.world, node.engine, access, server)


@pytest.fixture
async def follower(node: ProposerNode, tmp_path: Path) -> AsyncIterator[FollowerNode]:
    made = FollowerNode(tmp_path / "follower", node.provider)
    made.open(LocalNetwork(), "ash")
    yield made
    await made.close()


@pytest.mark.rule("SYN-001", "SYN-002", "NTC-004", "BLB-003", "JOB-010")
async def test_a_follower_syncs_over_http_and_only_ciphertext_of_private_bytes_leaves(
    node: ProposerNode, http: HttpNode, follower: FollowerNode
) -> None:
    await node.resolve(SECRET * 3, seals=1)
    await node.pack_final()
    await node.archive_now()
    await node.pruner.run_once()
    hot = await node.add_blobs(b"told")
    peers = HttpPeers([http.url + "/"], await http.token(Role.AUDITOR))
    follower.follower.connect(peers)
    await follower.run()
    (peer,) = peers.names()
    assert await follower.height() == await peers.final_height(peer) == await node.service.final_height()
    blobs = [blob for height in range(1, hot + 1) for blob in await follower.blobs(Height(height))]
    assert [blob.bytes_status for blob in blobs] == [BytesStatus.ABSENT, BytesStatus.HERE]
    for height in range(1, hot + 1):
        assert SECRET not in (await peers.package(peer, Height(height)) or b"")
    await node.archive_now()  # nothing tells a follower over HTTP: it asks
    await follower.run()
    (blob,) = await follower.blobs(hot)
    assert (blob.status, blob.bytes_status, blob.notice != b"") == (BlobStatus.ARCHIVED, BytesStatus.PRUNED, True)
    assert await peers.blob(peer, hot, 0) == await node.raw_blob(node.lives[-1])
    assert await peers.package(peer, Height(10**9)) is None


@pytest.mark.rule("SYN-001", "SEC-001")
async def test_packages_are_for_operators_and_auditors_and_paths_are_checked(
    node: ProposerNode, http: HttpNode
) -> None:
    async def ask(path: str, token: str | None) -> tuple[int, str]:
        async with http.client(token) as client:
            answer = await client.get(f"/v1/packages/{path}")
            return answer.status_code, "" if answer.status_code == 200 else name_of(answer)

    await node.seal(4)
    assert await ask("head", None) == (401, "Unauthorized")
    assert await ask("1", await http.token(Role.REQUESTER)) == (403, "Forbidden")
    auditor = await http.token(Role.AUDITOR)
    assert await ask("1", auditor) == (200, "")
    assert await ask("head", await http.token(Role.OPERATOR, scopes=("chain.readPackages",))) == (200, "")
    assert await ask("1", await http.token(Role.OPERATOR, scopes=("job.*",))) == (403, "Forbidden")
    for path, expected in (
        ("0", (404, "NotFound")),
        ("99999", (404, "NotFound")),
        ("1/blobs/7", (404, "NotFound")),
        ("-1", (400, "InvalidParams")),
        ("x", (400, "InvalidParams")),
        ("1/blobs", (400, "InvalidParams")),
    ):
        assert await ask(path, auditor) == expected, path
    http.access.packages = None
    assert (await ask("1", auditor))[0] == 503


async def test_a_node_that_cannot_be_reached_or_is_none_is_away(http: HttpNode) -> None:
    for url in ("http://127.0.0.1:1", f"{http.url}/nowhere"):
        peers = HttpPeers([url], "no token")
        with pytest.raises(Unavailable):
            await peers.final_height(url)


@pytest.mark.rule("SYN-001", "PRU-001", "SEC-001")
async def test_a_follower_serves_others_and_a_node_gets_back_from_it_what_the_archive_lost(
    node: ProposerNode, http: HttpNode, tmp_path: Path
) -> None:
    keeper, other = FollowerNode(tmp_path / "keeper"), FollowerNode(tmp_path / "other")
    height = await node.add_blobs(b"kept elsewhere")
    keeper.open(LocalNetwork(), "keeper")
    keeper.follower.connect(HttpPeers([http.url], await http.token(Role.AUDITOR)))
    await keeper.run()
    server = FollowerServer(keeper.follower, "the-token", "127.0.0.1", free_port())
    await server.open()
    try:
        url = f"http://127.0.0.1:{server.port}"
        peers = HttpPeers([url], "the-token")
        other.open(LocalNetwork(), "other")
        other.follower.connect(peers)
        await other.run()
        assert await other.blobs(height) == await keeper.blobs(height)
        for stranger in (None, "another-token"):
            with pytest.raises(Unavailable, match="401"):
                await HttpPeers([url], stranger).final_height(url)
        await node.archive_now()
        await node.pruner.run_once()
        await node.seal()
        (lost,) = [live.blob for live in await stored_blobs(node.engine, height)]
        repair = BlobRepair(node.engine, node.files, node.kzg, node.provider, peers)
        assert await repair.recall(lost, "gone")
        assert node.engine.undurable_state.blob_heights[height][0].blob.status is BlobStatus.SUSPECT
        assert len(node.packs) == 1
    finally:
        await server.close()
        await keeper.close()
        await other.close()
