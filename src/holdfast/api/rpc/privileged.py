"""Methods that record a privileged command (SEC-001): the journal names who asked for it, and by which method."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from holdfast.api.node_access import NodeAccess, Principal, RpcCall
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Command
from holdfast.core.base.privileged import PrivilegedCommand
from holdfast.core.key.model import Role
from holdfast.engine.outcome import Outcome

BuildCommand = Callable[[Any, Principal], Command | Refused]
"""From parameters and principal to the command."""
Check = Callable[[NodeAccess, Principal, Any], Awaitable[Refused | None]]
"""Why this principal may not have these parameters carried out."""


class CommandResult(msgspec.Struct, frozen=True):
    """The event that the command caused; for a repeat, the event of the first time."""

    event: int
    is_repeat: bool


def privileged_handler(
    build_command: BuildCommand, check: Check | None = None
) -> Callable[[NodeAccess, RpcCall, Any], Awaitable[CommandResult | Refused]]:
    """The handler of a method that submits one privileged command and answers with its event."""

    async def handle(access: NodeAccess, call: RpcCall, params: Any) -> CommandResult | Refused:
        if check is not None and (refusal := await check(access, call.principal, params)):
            return refusal
        command = build_command(params, call.principal)
        return (
            command if isinstance(command, Refused) else command_result(await submit_privileged(access, call, command))
        )

    return handle


async def submit_privileged(access: NodeAccess, call: RpcCall, command: Command) -> Outcome:
    """Submit a command under the principal's name."""
    return await access.submit(PrivilegedCommand(call.principal.name, call.method, command))


async def submit_for(access: NodeAccess, call: RpcCall, command: Command) -> Outcome:
    """Submit a command about a requester's own job: the requester acts for itself, others leave their name."""
    return await access.submit(_as_principal(call, command))


async def submit_grouped_for(access: NodeAccess, call: RpcCall, command: Command) -> Outcome:
    """The same, together with those of concurrent calls."""
    return await access.submit_grouped(_as_principal(call, command))


def _as_principal(call: RpcCall, command: Command) -> Command:
    is_own = call.principal.role is Role.REQUESTER
    return command if is_own else PrivilegedCommand(call.principal.name, call.method, command)


def command_result(outcome: Outcome) -> CommandResult | Refused:
    return outcome if isinstance(outcome, Refused) else CommandResult(outcome.event, outcome.is_repeat)
