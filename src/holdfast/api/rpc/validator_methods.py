"""Methods about the set of validators (NTC-005): who proposes and archives, and from which height on."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.api.node_access import OPERATORS, NodeAccess, RpcCall, RpcMethod
from holdfast.api.rpc.params import NoParams
from holdfast.api.rpc.privileged import CommandResult, privileged_handler
from holdfast.core.validator.messages import AddValidator, RemoveValidator
from holdfast.engine.queries.archive.validators import ListValidators, ValidatorView


class ValidatorParams(msgspec.Struct, frozen=True):
    """A public key of 32 bytes."""

    key: bytes


async def _list(access: NodeAccess, _: RpcCall, __: NoParams) -> list[ValidatorView]:
    return await access.source.query_durable(ListValidators())


METHODS: Final[dict[str, RpcMethod]] = {
    "validator.list": RpcMethod(
        "The keys that are or were validators, and what waits for them.", NoParams, list[ValidatorView], _list
    ),
    "validator.add": RpcMethod(
        "Let a key propose and archive from the next block on.",
        ValidatorParams,
        CommandResult,
        privileged_handler(lambda params, _: AddValidator(params.key)),
        OPERATORS,
        is_write=True,
    ),
    "validator.remove": RpcMethod(
        "Let a key not count any more from the next block on.",
        ValidatorParams,
        CommandResult,
        privileged_handler(lambda params, _: RemoveValidator(params.key)),
        OPERATORS,
        is_write=True,
    ),
}
