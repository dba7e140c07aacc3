"""Spool, flow control, network and node under one seed: in order, exactly once, no false ack, no lost record."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random

import pytest
from tests.counts import counts
from tests.shipping.simulated_sender import SimulatedSender, SimulatedSession

SEEDS = counts(300, 10_000)
STEPS = 60


def random_session(world: SimulatedSender) -> SimulatedSession:
    return world.random.choice(list(world.sessions.values()))


ACTIONS: dict[str, tuple[int, Callable[[SimulatedSender], object]]] = {
    "emit": (10, lambda world: world.emit(world.random.randrange(1, 8))),
    "spool": (10, lambda world: world.step(random_session(world))),
    "connect": (3, lambda world: world.connect(random_session(world))),
    "send": (14, lambda world: world.send(random_session(world))),
    "arrive": (16, lambda world: world.deliver_one()),
    "commit": (10, lambda world: world.node.commit()),
    "hear": (16, lambda world: world.receive(random_session(world))),
    "cut": (2, lambda world: random_session(world).disconnect()),
    "tick": (2, lambda world: world.tick()),
    "compact": (2, lambda world: random_session(world).spool.compact()),
    "node dies": (1, lambda world: world.node_crashes()),
    "process dies": (1, lambda world: world.crash(is_power=False)),
    "power fails": (1, lambda world: world.crash(is_power=True)),
    "power fails within": (2, lambda world: world.step_until_power_fails(world.random.randrange(1, 12))),
}
"""What may happen next, and how often."""
NAMES, WEIGHTS = list(ACTIONS), [weight for weight, _ in ACTIONS.values()]


def run_seed(seed: int) -> SimulatedSender:
    world, draw = SimulatedSender(seed), Random(seed + 1)
    for _ in range(STEPS):
        ACTIONS[draw.choices(NAMES, WEIGHTS)[0]][1](world)
        world.record_promises()
        world.check_invariants()
    world.deliver_all()
    return world


def check_delivered(world: SimulatedSender) -> int:
    """What was promised is at the node: each once, in its place; how many."""
    tokens: list[int] = []
    for session, lines in world.node.lines.items():
        told = [json.loads(line) for line in lines]
        assert [each["sequence"] for each in told] == list(range(1, len(told) + 1)), "a gap or a repetition"
        tokens += [each["payload"]["n"] for each in told]
        for sequence, token in world.promised.get(session, {}).items():
            assert told[sequence - 1]["payload"]["n"] == token, "another record in its place"
    assert len(tokens) == len(set(tokens)), "stored twice"
    assert {token for session in world.promised.values() for token in session.values()} <= set(tokens), "lost"
    return len(tokens)


@pytest.mark.rule("EVD-001", "EVD-002", "EVD-003", "EVD-004", "SP-ACK-001", "SP-ACK-004")
@pytest.mark.timeout(1_800)
def test_whatever_the_disk_the_network_and_the_node_do_every_record_is_stored_once_and_in_order() -> None:
    stored = 0
    for seed in range(SEEDS):
        try:
            stored += check_delivered(run_seed(seed))
        except AssertionError as broken:
            raise AssertionError(f"seed {seed}: {broken}") from broken
    assert stored > 20 * SEEDS, "the worlds are not empty"


def test_a_seed_replays_the_same_run() -> None:
    assert run_seed(7).node.lines == run_seed(7).node.lines
