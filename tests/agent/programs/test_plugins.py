"""Executors that are installed: the example of docs/how-to/provider.md, as a package beside Holdfast, does a job."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from tests.agent.fake_node import FakeLease, FakeNode, now_ms
from tests.agent.in_process_agent import wait_until
from tests.stories.node_process import HOLDFAST

from holdfast.agent.executors.own_work import GROUP, OwnExecutor, WorkSource, read_option, why_not_own
from holdfast.wire.gen.holdfast.provider.v1 import provider_pb2 as pb

DOCS = Path(__file__).parents[3] / "docs" / "how-to" / "provider.md"
LEASE = b"L" * 32


def snippet(language: str) -> str:
    """The example of the page, in this language."""
    section = DOCS.read_text("utf-8").partition("## Plug-ins")[2]
    found = re.search(rf"```{language}\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return found[1]


def install(folder: Path) -> None:
    """As an installer leaves it: the module, and what its metadata say of entry points."""
    points = tomllib.loads(snippet("toml"))["project"]["entry-points"][GROUP]
    folder.mkdir()
    (folder / "shout.py").write_text(snippet("python"))
    info = folder / "shout-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shout\nVersion: 1.0\n")
    lines = [f"[{GROUP}]", *(f"{name} = {target}" for name, target in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


def offer(node: FakeNode, **spec: object) -> FakeLease:
    payload = {"kind": "COMPUTE", "spec": {"runtime": "shout"} | spec}
    lease = node.leases[LEASE] = FakeLease(LEASE, payload, now_ms(), 600_000)
    node.send_to_agents(pb.Updates(offers=[node.offer_of(lease)]))
    return lease


def agent_command(node: FakeNode, data: Path, executor: str) -> list[str]:
    command = [str(HOLDFAST), "agent", "--node", f"127.0.0.1:{node.port}", "--data", str(data)]
    return [*command, "--name", "oak", "--account", "oak", "--executor", executor]


@pytest.mark.timeout(120)
@pytest.mark.rule("PRV-005", "JOB-012")
async def test_the_example_of_the_page_is_installed_offered_and_does_a_job(node: FakeNode, tmp_path: Path) -> None:
    install(tmp_path / "site")
    lease, log = offer(node, args=["hello", "there"]), tmp_path / "log"
    with log.open("wb") as out:
        agent = subprocess.Popen(
            agent_command(node, tmp_path / "agent", "shout"),
            env=os.environ | {"PYTHONPATH": str(tmp_path / "site")},
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
        )
    try:
        await wait_until(lambda: lease.submitted or agent.poll() is not None, "a result")
    finally:
        agent.kill()
        agent.wait()
    assert node.outputs[lease.submitted] == b"HELLO THERE", log.read_text()


def test_an_executor_that_is_not_installed_is_refused_with_those_that_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site")
    monkeypatch.syspath_prepend(tmp_path / "site")
    own = read_option(WorkSource.PLUGIN, "shuot")
    assert isinstance(own, OwnExecutor)
    refused = why_not_own(own)
    assert refused is not None
    assert refused.message == "plugin: shuot: no entry point 'shuot'; there are ['shout']"


def test_the_example_is_about_twenty_lines() -> None:
    assert len(snippet("python").splitlines()) <= 22
