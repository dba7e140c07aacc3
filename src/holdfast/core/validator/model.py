"""The set of validators at every height, and who speaks for whom after a takeover."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import msgspec

from holdfast.core.base.values import Height
from holdfast.core.chain.model import HasChain

AddressOf = Callable[[bytes], bytes]
"""A public key to its address. Core has no Keccak: it is an argument, as time is."""


class ValidatorSet(msgspec.Struct, frozen=True):
    """Keys with the height from which they count, those that have left, and their successors."""

    since: dict[bytes, Height]
    ended: dict[bytes, Height]
    """From this height on a key does not count any more."""
    successors: dict[bytes, list[bytes]]
    """Who has taken over from a proposer, in order: what they archived for it counts for ever."""

    def at(self, height: Height) -> list[bytes]:
        """The keys that count at a height, in the order in which they joined."""
        return [key for key in self.since if self.is_member(key, height)]

    def is_member(self, key: bytes, height: Height) -> bool:
        since, ended = self.since.get(key), self.ended.get(key)
        return since is not None and since <= height and (ended is None or height < ended)

    def speaks_for(self, key: bytes, proposer: bytes) -> bool:
        """Whether a key archives what this proposer has proposed: it is the proposer, or has succeeded it."""
        return key in self._line_of(proposer)

    def key_at(self, height: Height, address: bytes, address_of: AddressOf) -> bytes | None:
        """The key behind an address, if it counts at a height: as a validator of it, or as one's successor."""
        for member in self.at(height):
            for key in self._line_of(member):
                if address_of(key) == address:
                    return key
        return None

    def _line_of(self, proposer: bytes) -> Iterator[bytes]:
        waiting, seen = [proposer], {proposer}
        while waiting:
            key = waiting.pop()
            yield key
            later = [each for each in self.successors.get(key, ()) if each not in seen]
            waiting += later
            seen.update(later)


class HasValidators(HasChain, Protocol):
    """The parts of the state that the validators read and change."""

    validators: dict[bytes, Height]
    """Keys, and since which height they count (NTC-002)."""
    validators_ended: dict[bytes, Height]
    proposer_successors: dict[bytes, list[bytes]]


def validator_set(state: HasValidators) -> ValidatorSet:
    return ValidatorSet(state.validators, state.validators_ended, state.proposer_successors)
