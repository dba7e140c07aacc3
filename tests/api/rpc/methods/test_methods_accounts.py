"""Deposits and withdrawals over RPC: for treasurers, whose keys are made at the machine (ESC-003)."""

from __future__ import annotations

import pytest
from tests.api.rpc.rpc_callers import ALICE, BOB, OPERATOR, TREASURER, rpc_node
from tests.core.blocks import SEAL, final_after

from holdfast.api.node_access import LOCAL
from holdfast.core.chain.messages import FinalizeSettlements
from holdfast.core.policy import Policy

pytestmark = pytest.mark.rule("ESC-003")
PRODUCTION = Policy()
IN = {"reference": "wire-1", "owner": "alice", "amount": 70, "reason": "an invoice"}
OUT = {"reference": "out-1", "owner": "alice", "amount": 30, "reason": "a payout"}
BACK = {"reference": "out-1", "reason": "the bank refused it"}


async def test_a_treasurer_books_what_came_in_and_goes_out_and_the_audit_log_names_it() -> None:
    async with rpc_node(PRODUCTION) as house:
        for is_repeat in (False, True):
            assert (await house.ask(TREASURER, "account.deposit", **IN))["is_repeat"] is is_repeat
        await house.ask(TREASURER, "account.withdraw", **OUT)
        await house.engine.submit(SEAL)
        await house.engine.submit(FinalizeSettlements())
        await house.ask(TREASURER, "account.returnWithdrawal", **BACK)
        assert (await house.ask(ALICE, "account.getAccount", owner="alice"))["available"] == 70
        await house.engine.wait_tables()
        listed = await house.ask(ALICE, "account.listTransfers")
        assert [(row["reference"], row["kind"], row["status"]) for row in listed["rows"]] == [
            ("wire-1", "deposit", "BOOKED"),
            ("out-1", "withdrawal", "FINAL"),
            ("out-1", "return", "BOOKED"),
        ]
        payable = await house.ask(TREASURER, "account.listTransfers", status="FINAL")
        assert [row["reference"] for row in payable["rows"]] == ["out-1"]
        assert (await house.ask(BOB, "account.listTransfers"))["rows"] == []
        assert (await house.refusal(BOB, "account.listTransfers", owner="alice"))[0] == "Forbidden"
        acts = [(TREASURER.name, f"account.{each}") for each in ("deposit", "withdraw", "returnWithdrawal")]
        assert house.privileged_acts() == acts


async def test_neither_an_operator_nor_the_local_socket_deposits() -> None:
    async with rpc_node(PRODUCTION) as house:
        for caller in (OPERATOR, LOCAL, ALICE):
            for method, params in (("account.deposit", IN), ("account.withdraw", OUT)):
                assert (await house.refusal(caller, method, **params))[0] == "Forbidden"
        assert (
            "only a development"
            in (await house.refusal(LOCAL, "account.mint", id="00" * 32, owner="alice", amount=5))[2]
        )


@pytest.mark.rule("SEC-001")
async def test_a_treasurers_key_is_created_and_rotated_at_the_machine_alone() -> None:
    params = {"id": "ab" * 8, "secret": "11" * 32, "role": "treasurer"}
    async with rpc_node() as house:
        name, rule, _ = await house.refusal(OPERATOR, "key.createKey", **params)
        assert (name, rule) == ("Forbidden", "ESC-003")
        await house.ask(LOCAL, "key.createKey", **params)
        rotation = {"id": "ab" * 8, "secret": "22" * 32}
        assert (await house.refusal(OPERATOR, "key.rotateKey", **rotation))[1] == "ESC-003"
        await house.ask(LOCAL, "key.rotateKey", **rotation)
        await house.ask(OPERATOR, "key.revokeKey", id="ab" * 8)


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize("amount", [-1, 0, -(2**63)])
@pytest.mark.parametrize(
    ("caller", "method"),
    [(TREASURER, "account.deposit"), (TREASURER, "account.withdraw"), (OPERATOR, "account.mint")],
)
async def test_an_amount_below_one_is_invalid(caller: object, method: str, amount: int) -> None:
    params = {"id": "00" * 32, "owner": "alice"} if method == "account.mint" else IN
    async with rpc_node(final_after(2)) as house:
        assert (await house.refusal(caller, method, **(params | {"amount": amount})))[0] == "InvalidParams"  # type: ignore[arg-type]
