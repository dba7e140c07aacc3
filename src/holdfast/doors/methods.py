"""What a node can be asked: one table from method name to handler, shared by every door that speaks JSON-RPC."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from holdfast import __version__
from holdfast.core import law
from holdfast.core.escrow import acts
from holdfast.core.refusal import Refused
from holdfast.core.state import digest
from holdfast.core.values import AccountId, HoldId
from holdfast.doors.shapes import plain, read_params
from holdfast.engine import read
from holdfast.engine.loop import Outcome

Submit = Callable[[law.Command], Awaitable[Outcome]]


class Desk:
    """Who answers at a door: the owner, or a follower that hands commands on to the owner."""

    def __init__(self, source: read.Source, submit: Submit) -> None:
        self.source, self.submit = source, submit


Handler = Callable[[Desk, object], Awaitable[Any]]
"""Parameters in, a plain value or Refused out; raises Unavailable or Corrupt."""


class Nothing(msgspec.Struct, frozen=True):
    """A method without parameters."""


class OneAccount(msgspec.Struct, frozen=True):
    """Whose account."""

    owner: AccountId


class OneHold(msgspec.Struct, frozen=True):
    """Which reservation."""

    id: HoldId


class ManyAccounts(msgspec.Struct, frozen=True):
    """A page of accounts, by name."""

    after: str = ""
    limit: int = 100


class ManyHolds(msgspec.Struct, frozen=True):
    """A page of reservations, by the event that made them, of one owner or in one status where given."""

    owner: str | None = None
    status: str | None = None
    after: int = 0
    limit: int = 100


def _command(kind: type[Any]) -> Handler:
    async def handle(desk: Desk, params: object) -> Any:
        command = read_params(kind, params)
        return command if isinstance(command, Refused) else plain_or_refused(await desk.submit(command))

    return handle


def _question(kind: type[Any], answer: Callable[[read.Source, Any], Awaitable[Any]]) -> Handler:
    async def handle(desk: Desk, params: object) -> Any:
        asked = read_params(kind, params)
        return asked if isinstance(asked, Refused) else plain_or_refused(await answer(desk.source, asked))

    return handle


def plain_or_refused(value: object) -> Any:
    return value if isinstance(value, Refused) else plain(value)


async def _account(source: read.Source, asked: OneAccount) -> object:
    found = await read.account(source, asked.owner)
    return found or Refused("ESC-001", f"nobody has paid {asked.owner!r} yet", name="NotFound")


async def _hold(source: read.Source, asked: OneHold) -> object:
    found = await read.hold(source, asked.id)
    return found or Refused("ESC-001", f"no hold {asked.id.hex()}", name="NotFound")


async def _accounts(source: read.Source, asked: ManyAccounts) -> object:
    return _bad_limit(asked.limit) or await read.page(source, "account", {}, asked.after, asked.limit)


async def _holds(source: read.Source, asked: ManyHolds) -> object:
    match = {name: value for name in ("owner", "status") if (value := getattr(asked, name)) is not None}
    return _bad_limit(asked.limit) or await read.page(source, "hold", match, asked.after, asked.limit)


async def _status(source: read.Source, _: Nothing) -> object:
    counts = await source.ask(lambda state: (len(state.ledger.accounts), len(state.ledger.holds)))
    standing = source.standing()
    return {
        "version": __version__,
        "network": source.policy.network,
        "chain_id": source.policy.chain_id,
        "role": standing.role,
        "phase": standing.phase,
        "batch": standing.tip.number,
        "epoch": standing.tip.epoch,
        "event": standing.tip.last,
        "time_ms": standing.tip.time_ms,
        "tables_as_of": standing.tables_as_of,
        "accounts": counts[0],
        "holds_open": counts[1],
    }


async def _digest(source: read.Source, _: Nothing) -> object:
    return await source.ask(lambda state: {"event": state.last_event, "digest": digest(state)})


def _bad_limit(limit: int) -> Refused | None:
    if 1 <= limit <= read.PAGE_MAX:
        return None
    return Refused("RPC-001", f"params: limit: {limit} is not in 1 … {read.PAGE_MAX}", name="InvalidParams")


COMMANDS: Final[dict[type, str]] = {
    acts.Mint: "account.mint",
    acts.Reserve: "account.reserve",
    acts.Charge: "account.charge",
    acts.Refund: "account.refund",
    acts.Finalize: "account.finalize",
    acts.RollBack: "account.rollBack",
}
"""Every command has one method; a follower uses the same names when it hands a command on."""

METHODS: Final[dict[str, Handler]] = {
    **{name: _command(kind) for kind, name in COMMANDS.items()},
    "account.show": _question(OneAccount, _account),
    "account.list": _question(ManyAccounts, _accounts),
    "hold.show": _question(OneHold, _hold),
    "hold.list": _question(ManyHolds, _holds),
    "node.status": _question(Nothing, _status),
    "node.digest": _question(Nothing, _digest),
}
