"""The queue and its providers as an operator looks at them: what waits since when, who holds what until when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.api.grpc.agent_driver import AgentDriver
from tests.stories.lives.test_node_metrics import next_offer, running_node


@pytest.mark.rule("RPC-001", "JOB-008")
async def test_an_operator_sees_what_waits_and_which_leases_a_provider_has(tmp_path: Path) -> None:
    async with running_node(tmp_path) as place:
        await place.enqueue(2)
        shown = await place.node.run("queue", "show")
        lines = [line.split() for line in shown.out.splitlines()]
        assert ["KIND", "WAITING", "OLDEST"] in lines
        assert next(line for line in lines if line[0] == "AI")[1] == "2"
        assert next(line for line in lines if line[0] == "QUANTUM")[1:] == ["0", "-"]
        assert (shown.field("depth"), shown.field("retrying")) == ("2", "0")

        hand: Any = AgentDriver(place, "oak")  # type: ignore[arg-type]
        id_ = hand.id.hex()
        stream = await place.open_work_stream(hand)
        offer = await next_offer(stream)
        task, lease = offer.task_id.hex(), offer.lease_id.hex()
        held = (await place.node.run("job", "list", "--provider", id_, "--json")).json["jobs"]
        assert [(each["task_id"], each["lease_id"], each["state"]) for each in held] == [(task, lease, "ASSIGNED")]
        listed = await place.node.run("job", "list", "--provider", id_, "--kind", "AI", "--wide")
        assert [line.split()[0] for line in listed.out.splitlines()] == ["TASK", task]
        provider = await place.node.run("provider", "show", id_, "--wide")
        assert provider.field("status") == "ACTIVE"
        assert task in provider.out
        assert lease in provider.out
        told = (await place.node.run("provider", "show", id_, "--json")).json
        assert [each["task_id"] for each in told["jobs"]] == [task]
        waiting = (await place.node.run("queue", "show", "--json")).json
        assert (waiting["waiting"]["AI"], waiting["by_kind"]) == (1, {"AI": 1})

        quote = await place.node.run("job", "quote", "--model", "echo")
        assert quote.code == 0, quote.err
        for words in (("--provider", "ab" * 32), ("--provider", id_, "--from-height", 1)):
            no = await place.node.run("job", "list", *words)
            assert (no.code != 0, no.err.startswith("holdfast: ")) == (True, True)
