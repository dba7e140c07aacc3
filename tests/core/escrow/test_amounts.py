"""Every request that names an amount is checked alike: below its least it is InvalidParams (ESC-001)."""

from __future__ import annotations

from typing import Final

import msgspec
import pytest
from tests.core.commands import payload, some_id
from tests.core.core_driver import ALICE, CoreDriver

from holdfast.core import state_machine
from holdfast.core.base.errors import Refused
from holdfast.core.base.event import Command
from holdfast.core.base.values import AccountId, Amount, Height, Tier
from holdfast.core.escrow.messages import Charge, Deposit, Mint, Reserve, Withdraw
from holdfast.core.provider.messages import Stake, Unstake
from holdfast.core.queue.decide import build_enqueue
from holdfast.core.queue.messages import Enqueue, RaiseFee

BOB: Final = AccountId("bob")


def command(core: CoreDriver, kind: type, amount: int) -> Command | Refused:
    """A command of this kind that only its amount can make wrong."""
    told, new = Amount(amount), some_id(77)
    match kind:
        case _ if kind is Enqueue:
            return build_enqueue(core.state.policy, ALICE, Tier.FREE, payload(), amount, 9)
        case _ if kind is RaiseFee:
            return RaiseFee(core.enqueue(), told, ALICE)
        case _ if kind is Charge:
            core.do(Reserve(new, ALICE, Amount(5)))
            return Charge(new, Height(0), BOB, told)
        case _ if kind in (Stake, Unstake):
            return Stake(core.provider(), told, new) if kind is Stake else Unstake(core.provider(), told, new, "me")
        case _ if kind in (Deposit, Withdraw):
            return kind("wire 7", ALICE, told, "why")
    return kind(new, ALICE, told)  # type: ignore[no-any-return]


def names_an_amount(kind: type) -> bool:
    return any(field.type is Amount for field in msgspec.structs.fields(kind))


COMMANDS: Final = {*state_machine.COMMANDS, *state_machine.COMMAND_RUNS}
KINDS: Final = sorted(filter(names_an_amount, COMMANDS), key=lambda kind: kind.__name__)


def test_the_commands_that_name_an_amount_are_all_known() -> None:
    assert set(KINDS) == {Charge, Deposit, Enqueue, Mint, RaiseFee, Reserve, Stake, Unstake, Withdraw}


@pytest.mark.rule("ESC-001")
@pytest.mark.parametrize("amount", [-(2**63), -1, 0, 2**63])
@pytest.mark.parametrize("kind", KINDS)
def test_an_amount_out_of_range_is_invalid_whatever_asks_for_it(kind: type, amount: int) -> None:
    core = CoreDriver()
    core.funded()
    if (kind, amount) == (Charge, 0):
        pytest.skip("nothing is charged and everything refunded")
    asked = command(core, kind, amount)
    outcome = asked if isinstance(asked, Refused) else core.ask(asked)
    assert isinstance(outcome, Refused)
    field = "max_fee" if kind in (Enqueue, RaiseFee) else "amount"
    assert (outcome.rule, outcome.name) == ("ESC-001", "InvalidParams")
    assert outcome.message.startswith(f"{field}: {amount} is not in ")
