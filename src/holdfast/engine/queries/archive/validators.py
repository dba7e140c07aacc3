"""Queries about the set of validators (NTC-005)."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.archive.confirm import missing_validators
from holdfast.core.archive.decide import pending_under_old_keys
from holdfast.core.base.values import Height
from holdfast.core.state import State
from holdfast.core.validator.model import ValidatorSet, validator_set
from holdfast.engine.queries.query import Query


class ValidatorView(msgspec.Struct, frozen=True):
    """A key that is or was a validator."""

    key: bytes
    since: Height
    ended: Height | None
    """From this height on it does not count."""
    successors: list[bytes]
    """Who has taken over from it, and so archives what it has left."""
    pending_heights: list[Height]
    """Heights that only this key could archive, and has not."""
    unconfirmed: int
    """Notices that it has not confirmed."""


class ListValidators(Query[list[ValidatorView]], frozen=True):
    """All keys that ever were validators."""


class GetValidatorSet(Query[ValidatorSet], frozen=True):
    """The set at every height."""


def _get_set(state: State, _: GetValidatorSet) -> ValidatorSet:
    known = validator_set(state)
    return ValidatorSet(dict(known.since), dict(known.ended), {old: list(new) for old, new in known.successors.items()})


def _list(state: State, _: ListValidators) -> list[ValidatorView]:
    pending = pending_under_old_keys(state)
    missing = [missing_validators(state, waiting) for waiting in state.notices_unconfirmed.values()]
    return [
        ValidatorView(
            key=key,
            since=since,
            ended=state.validators_ended.get(key),
            successors=list(state.proposer_successors.get(key, ())),
            pending_heights=pending.get(key, []),
            unconfirmed=sum(key in keys for keys in missing),
        )
        for key, since in state.validators.items()
    ]


QUERIES: Final = {ListValidators: _list, GetValidatorSet: _get_set}
