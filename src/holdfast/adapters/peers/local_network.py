"""Several nodes in one process (SYN-001): requests are calls, messages wait in a queue until they are delivered.

Whoever holds the network decides what goes wrong: links are cut, requests fail, messages are lost, doubled or late.
Nothing happens by chance and nothing waits for a clock, so that a test can tell what it has seen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.core.base.errors import Unavailable
from holdfast.core.base.values import Height
from holdfast.ports.sync import PeerService


class QueuedMessage(NamedTuple):
    """A message on its way."""

    sender: str
    receiver: str
    raw: bytes
    rounds: int
    """After how many deliveries it arrives."""


class LocalNetwork:
    """The nodes by name, the links that are cut, and the messages on their way."""

    def __init__(self) -> None:
        self.services: dict[str, PeerService] = {}
        self.queue: deque[QueuedMessage] = deque()
        self.cut: set[frozenset[str]] = set()
        """Pairs of nodes that do not reach each other."""
        self.delay_rounds = 0
        self.copies = 1
        """How often each message is sent from now on: 0 loses it, 2 doubles it."""

    def join(self, name: str, service: PeerService) -> LocalPeers:
        """A node that comes back takes the place of the one before it."""
        self.services[name] = service
        return LocalPeers(self, name)

    def leave(self, name: str) -> None:
        self.services.pop(name, None)

    def partition(self, *groups: Sequence[str]) -> None:
        """Only nodes of the same group reach each other."""
        group_of = {name: number for number, group in enumerate(groups) for name in group}
        pairs = ((one, other) for one in self.services for other in self.services if one < other)
        self.cut = {frozenset(pair) for pair in pairs if group_of.get(pair[0]) != group_of.get(pair[1])}

    def heal(self) -> None:
        self.cut, self.copies, self.delay_rounds = set(), 1, 0

    def is_reachable(self, one: str, other: str) -> bool:
        return other in self.services and frozenset((one, other)) not in self.cut

    def post(self, sender: str, raw: bytes) -> None:
        for name in list(self.services):
            if name != sender:
                self.queue.extend([QueuedMessage(sender, name, raw, self.delay_rounds)] * self.copies)

    async def deliver(self) -> int:
        """One round: what is due arrives, in the order of its sender; how many messages did."""
        due, self.queue = self.queue, deque()
        arrived: dict[tuple[str, str], list[bytes]] = {}
        for message in due:
            if message.rounds:
                self.queue.append(message._replace(rounds=message.rounds - 1))
            elif self.is_reachable(message.sender, message.receiver):
                arrived.setdefault((message.sender, message.receiver), []).append(message.raw)
        for (_, receiver), raws in arrived.items():
            await self.services[receiver].receive(raws)
        return sum(map(len, arrived.values()))


class LocalPeers:
    """The network as one of its nodes sees it."""

    def __init__(self, network: LocalNetwork, name: str) -> None:
        self._network, self._name = network, name

    def names(self) -> list[str]:
        return [name for name in self._network.services if name != self._name]

    async def final_height(self, peer: str) -> Height:
        return await self._service(peer).final_height()

    async def package(self, peer: str, height: Height) -> bytes | None:
        return await self._service(peer).package(height)

    async def blob(self, peer: str, height: Height, number: int) -> bytes | None:
        return await self._service(peer).blob(height, number)

    async def notices(self, peer: str, height: Height) -> Sequence[bytes]:
        return await self._service(peer).notices(height)

    async def broadcast(self, message: bytes) -> None:
        self._network.post(self._name, message)

    def _service(self, peer: str) -> PeerService:
        if not self._network.is_reachable(self._name, peer):
            raise Unavailable("SYN-001", f"{peer} cannot be reached", "another peer is asked")
        return self._network.services[peer]
