"""A tiny contract that uses host calls: it asks for work, waits for the block after the result's, and uses it once.

Run it from anywhere: python examples/contract.py

The node, the provider's agent and the contract live in this one process; the node is a development network in a folder
that is removed at the end. A contract's call names chain, height, transaction and caller; the node refuses it at any
other height than that of the open block, so whoever executes contracts runs it again there.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import tempfile
from pathlib import Path

import structlog

from holdfast import app
from holdfast.agent.executors import built_in
from holdfast.agent.settings import AgentSettings
from holdfast.config import Config
from holdfast.core.canon import H
from holdfast.core.escrow.acts import Mint
from holdfast.core.policy import ChainPolicy, Policy
from holdfast.core.provider.acts import ProviderRegistered, Stake
from holdfast.core.refusal import Refused
from holdfast.core.values import AccountId, Amount, EventNo, HoldId, Network, TaskId
from holdfast.doors.grpc.settings import GrpcSettings
from holdfast.host import Call, Host

ORACLE = AccountId("oracle")


class Oracle:
    """The contract: one question, one answer, used once."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def ask(self, call: Call, question: str) -> TaskId | Refused:
        receipt = await self._host.ai_enqueue(call, {"model": "echo", "prompt": question}, max_fee=100)
        return receipt if isinstance(receipt, Refused) else receipt.task_id

    async def settle(self, call: Call, task: TaskId) -> str | Refused:
        """Reads the digest that the chain holds, and marks the result as used: a second settlement is refused."""
        seen = await self._host.read_result(call, task)
        if isinstance(seen, Refused):
            return seen
        used = await self._host.consume_result(call, task)
        return used if isinstance(used, Refused) else seen.result_digest.hex()


class Executor:
    """Whoever runs contracts: gives each call the open height and the transaction that it is part of."""

    def __init__(self, node: app.Node) -> None:
        self._node, self._txs = node, 0

    def call(self) -> Call:
        self._txs += 1
        policy, height = self._node.config.policy, self._node.engine.state.open_height
        return Call(chain_id=policy.chain_id, height=height, tx_hash=H("example.tx.v1", self._txs), caller=ORACLE)


async def settled(contract: Oracle, run: Executor, node: app.Node, task: TaskId) -> str:
    """Run the contract again whenever something happened, until its result can be read."""
    async for _ in node.engine.tail.follow(node.engine.durable.last):
        answer = await contract.settle(run.call(), task)
        if not isinstance(answer, Refused):
            return answer
        if answer.name not in ("NoResultYet", "HeightMismatch"):
            sys.exit(str(answer))
    sys.exit("the node stopped")


async def main(folder: Path) -> None:
    port = free_port()
    policy = Policy.for_network(Network.DEVELOPMENT)
    chain = ChainPolicy(block_ms=200, finality_depth=12)
    config = Config(
        data=folder / "node",
        grpc=GrpcSettings(port=port),
        policy=Policy(network=policy.network, chain=chain, result=policy.result),
    )
    node = app.Node(config)
    await node.start()
    stop = asyncio.Event()
    agent = asyncio.create_task(provider(folder / "agent", port, node, stop))
    try:
        await node.engine.submit(Mint(HoldId(H("example.mint.v1", 1)), ORACLE, Amount(1_000)))
        contract, run = Oracle(Host(node.desk)), Executor(node)
        task = await contract.ask(run.call(), "what is held?")
        if isinstance(task, Refused):
            sys.exit(str(task))
        print(f"asked: task {task.hex()}")
        print(f"settled: result {await settled(contract, run, node, task)}")
        again = await contract.settle(run.call(), task)
        while isinstance(again, Refused) and again.name == "HeightMismatch":  # a block was sealed meanwhile
            again = await contract.settle(run.call(), task)
        print(f"settled again: {again.name if isinstance(again, Refused) else again}")
    finally:
        stop.set()
        await agent
        await node.stop()


async def provider(folder: Path, port: int, node: app.Node, stop: asyncio.Event) -> None:
    """An agent with the stake that it needs, working for this node."""
    settings = AgentSettings(node=f"127.0.0.1:{port}", data=folder, name="oak", account="oak", models=("echo",))
    executors = built_in(settings.models)
    assert not isinstance(executors, Refused)
    made = app.agent(settings, executors, None, lambda _: lambda _: None)
    working = asyncio.create_task(made.run(stop))
    await node.engine.submit(Mint(HoldId(H("example.mint.v1", 2)), AccountId("oak"), Amount(10_000)))
    async for recorded in node.engine.tail.follow(EventNo(0)):
        if isinstance(recorded.event, ProviderRegistered):
            break
    await node.engine.submit(Stake(made.id, Amount(10_000), HoldId(H("example.stake.v1", 1))))
    await working


def free_port() -> int:
    """A loopback port that nobody listens on."""
    for port in range(21_000, 32_000):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
    sys.exit("no free port")


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with tempfile.TemporaryDirectory(prefix="holdfast-contract-") as place:
        asyncio.run(main(Path(place)))
