"""A node that runs its own gateway: an output is archived there offline, let go, and fetched again, through kills."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.loopback_ports import free_port
from tests.stories.lives.test_archive_story import LARGE, PATIENCE_S, ArchiveRun, _is
from tests.stories.node_process import NodeProcess, accepts_connections

from holdfast.client.node_socket import NodeSocket


class OwnGatewayRun(ArchiveRun):
    """The same node, with the archive that a development `init` chooses."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port = free_port()
        self.settings |= {"HOLDFAST_ARCHIVE__PROVIDER": "gateway", "HOLDFAST_GATEWAY__PORT": str(self.port)}
        self.node = NodeProcess(folder / "data", "node", self.settings)

    def gateway_pid(self) -> int:
        """The process that holds the gateway's folder."""
        lock = str(self.node.data / "gateway" / "gateway.lock")
        for pid in (int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()):
            try:
                files = [str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()]
            except OSError:
                continue
            if lock in files and pid != self.node.pid:
                return pid
        raise AssertionError("nobody holds the gateway's folder")


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[OwnGatewayRun]:
    made = OwnGatewayRun(tmp_path)
    yield made
    made.agent.end()
    made.node.end()


@pytest.mark.timeout(240)
@pytest.mark.rule("ARC-001", "ARC-003", "ARC-004", "PRU-001", "RET-002")
async def test_an_output_goes_to_the_nodes_own_gateway_and_comes_back_through_kills_of_both(run: OwnGatewayRun) -> None:
    await run.node.up()
    run.agent.up()
    async with NodeSocket(run.node.data, PATIENCE_S) as client:
        task = await run.finish_job(client, LARGE)
        os.kill(run.gateway_pid(), signal.SIGKILL)  # while blobs are on their way, or before
        await run.until(client, lambda client: _is(client, archived=2, pending=0))
    await run.node.kill()
    await run.node.up()
    async with NodeSocket(run.node.data, PATIENCE_S) as client:
        assert (await run.run_cli("archive", "key", "export", str(run.folder / "copy.key")))[0] == 0
        await run.until(client, lambda client: _is(client, pruned=2))
        assert list((run.node.data / "blobs" / "packs").iterdir()) == []
        assert (await run.run_cli("gc", "run", "--json"))[0] == 0
        tiers = await client.call("gc.getStatus")
        assert (tiers["bytes_hot"], tiers["bytes_warm"]) == (0, 0)
        code, _, err = await run.run_cli("blob", "fetch", task, "--output", str(run.folder / "fetched"))
        assert code == 0, err
        assert (run.folder / "fetched").read_text() == LARGE
    code, out, err = await run.run_cli("gateway", "check")
    assert (code, out) == (0, "✔ gateway      2 uploads, 0 faults\n"), err
    assert await run.node.stop() == 0
    assert not await accepts_connections(run.port), "the gateway ends with its node"
