"""Spool, custody, network and node under one seed: exactly once, in order, no false ack, nothing unacked deleted."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random

import pytest
from tests.agent.simulated_sender import Sender, Way
from tests.counts import counts

SEEDS = counts(300, 10_000)
STEPS = 60


def way_of(world: Sender) -> Way:
    return world.random.choice(list(world.ways.values()))


DEEDS: dict[str, tuple[int, Callable[[Sender], object]]] = {
    "emit": (10, lambda world: world.emit(world.random.randrange(1, 8))),
    "spool": (10, lambda world: world.step(way_of(world))),
    "connect": (3, lambda world: world.connect(way_of(world))),
    "send": (14, lambda world: world.send(way_of(world))),
    "arrive": (16, lambda world: world.arrive()),
    "commit": (10, lambda world: world.node.commit()),
    "hear": (16, lambda world: world.hear(way_of(world))),
    "cut": (2, lambda world: way_of(world).leave()),
    "tick": (2, lambda world: world.tick()),
    "compact": (2, lambda world: way_of(world).spool.compact()),
    "node dies": (1, lambda world: world.node_crashes()),
    "process dies": (1, lambda world: world.crash(is_power=False)),
    "power fails": (1, lambda world: world.crash(is_power=True)),
    "power fails within": (2, lambda world: world.with_a_fuse(world.random.randrange(1, 12))),
}
"""What may happen next, and how often."""
NAMES, WEIGHTS = list(DEEDS), [weight for weight, _ in DEEDS.values()]


def lived(seed: int) -> Sender:
    world, draw = Sender(seed), Random(seed + 1)
    for _ in range(STEPS):
        DEEDS[draw.choices(NAMES, WEIGHTS)[0]][1](world)
        world.note()
        world.look()
    world.deliver_all()
    return world


def whole(world: Sender) -> int:
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
            stored += whole(lived(seed))
        except AssertionError as law:
            raise AssertionError(f"seed {seed}: {law}") from law
    assert stored > 20 * SEEDS, "the worlds are not empty"


def test_a_seed_is_a_life_that_can_be_lived_again() -> None:
    assert lived(7).node.lines == lived(7).node.lines
