"""A tiny contract that uses host calls: it enqueues a job, waits until the result is readable, and consumes it once.

Run it from anywhere: python examples/contract.py

The node, the provider's agent and the contract run in this one process; the node is a development network in a folder
that is removed at the end. A contract's call has chain, height, transaction and caller. The node refuses it at any
height but that of the open block, so the runner of contracts repeats it there.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import tempfile
from pathlib import Path

import structlog

from holdfast.agent.executors.built_in import built_in_executors
from holdfast.agent.settings import AgentSettings
from holdfast.api.grpc.settings import GrpcSettings
from holdfast.app.node import Node
from holdfast.app.provider_agent import make_agent
from holdfast.config import Config
from holdfast.core.base.canonical import H
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import AccountId, Amount, EventNo, Network, ReservationId, TaskId
from holdfast.core.escrow.messages import Mint
from holdfast.core.policy import ChainPolicy, Policy
from holdfast.core.provider.messages import ProviderRegistered, Stake
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
        """Reads the digest on the chain, and consumes the result: a second settlement is refused."""
        result = await self._host.read_result(call, task)
        if isinstance(result, Refused):
            return result
        consumed = await self._host.consume_result(call, task)
        return consumed if isinstance(consumed, Refused) else result.result_digest.hex()


class ContractRunner:
    """Gives each call of a contract the open height and the transaction that it is part of."""

    def __init__(self, node: Node) -> None:
        self._node, self._txs = node, 0

    def call(self) -> Call:
        self._txs += 1
        policy, height = self._node.config.policy, self._node.engine.undurable_state.open_height
        return Call(chain_id=policy.chain_id, height=height, tx_hash=H("example.tx.v1", self._txs), caller=ORACLE)


async def wait_settled(contract: Oracle, runner: ContractRunner, node: Node, task: TaskId) -> str:
    """Run the contract again at every event, until its result is readable."""
    async for _ in node.engine.event_stream.follow(node.engine.durable_head.last):
        answer = await contract.settle(runner.call(), task)
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
    node = Node(config)
    await node.start()
    stop = asyncio.Event()
    agent = asyncio.create_task(run_provider(folder / "agent", port, node, stop))
    try:
        await node.engine.submit(Mint(ReservationId(H("example.mint.v1", 1)), ORACLE, Amount(1_000)))
        contract, runner = Oracle(Host(node.access)), ContractRunner(node)
        task = await contract.ask(runner.call(), "what is held?")
        if isinstance(task, Refused):
            sys.exit(str(task))
        print(f"asked: task {task.hex()}")
        print(f"settled: result {await wait_settled(contract, runner, node, task)}")
        again = await contract.settle(runner.call(), task)
        while isinstance(again, Refused) and again.name == "HeightMismatch":  # a block was sealed meanwhile
            again = await contract.settle(runner.call(), task)
        print(f"settled again: {again.name if isinstance(again, Refused) else again}")
    finally:
        stop.set()
        await agent
        await node.stop()


async def run_provider(folder: Path, port: int, node: Node, stop: asyncio.Event) -> None:
    """An agent with enough stake, working for this node."""
    settings = AgentSettings(node=f"127.0.0.1:{port}", data=folder, name="oak", account="oak", models=("echo",))
    executors = built_in_executors(settings.models)
    assert not isinstance(executors, Refused)
    agent = make_agent(settings, executors, None, lambda _: lambda _: None)
    working = asyncio.create_task(agent.run(stop))
    await node.engine.submit(Mint(ReservationId(H("example.mint.v1", 2)), AccountId("oak"), Amount(10_000)))
    async for stored in node.engine.event_stream.follow(EventNo(0)):
        if isinstance(stored.event, ProviderRegistered):
            break
    await node.engine.submit(Stake(agent.id, Amount(10_000), ReservationId(H("example.stake.v1", 1))))
    await working


def free_port() -> int:
    """A loopback port that is free."""
    for port in range(21_000, 32_000):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
    sys.exit("no free port")


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with tempfile.TemporaryDirectory(prefix="holdfast-contract-") as folder:
        asyncio.run(main(Path(folder)))
