"""Keys at the doors: who may call what, within which scopes, and every privileged act under a name."""

from __future__ import annotations

import msgspec
import pytest
from tests.api.rpc.rpc_callers import ALICE, AUDITOR, CALLERS, OPERATOR, rpc_node
from tests.core.core_driver import YEAR_MS, public

from holdfast.api.authentication import TokenAuthenticator
from holdfast.api.node_access import Principal, why_not_allowed
from holdfast.api.rpc.methods import METHODS
from holdfast.core.base.canonical import canonical
from holdfast.core.base.errors import Refused
from holdfast.core.base.privileged import PrivilegedActRecorded
from holdfast.core.base.values import AccountId
from holdfast.core.key.messages import KeyCreated
from holdfast.core.key.model import Role, secret_hash
from holdfast.core.provider.messages import Register
from holdfast.core.provider.model import provider_id
from holdfast.engine.outcome import Accepted

pytestmark = pytest.mark.rule("SEC-001")
ID, SECRET = "0123456789abcdef", "correct-horse-battery-staple"
HASH = secret_hash(SECRET.encode()).hex()

EVERYBODY = frozenset(CALLERS)
OPERATORS = frozenset({"operator", "local"})
REQUESTERS = OPERATORS | {"requester"}
READERS = OPERATORS | {"auditor"}
OWNERS = REQUESTERS | READERS
TREASURERS = frozenset({"treasurer"})
THEIRS = OPERATORS | {"provider"}
WHO = {
    "cap.enqueue": REQUESTERS,
    "cap.cancel": REQUESTERS,
    "cap.raiseFee": REQUESTERS,
    "cap.consumeResult": REQUESTERS,
    **dict.fromkeys(("cap.getQuote", "cap.readResult", "job.listDeadLetters"), OWNERS),
    **dict.fromkeys(("cap.listSchedules", "cap.getSchedule"), OWNERS),
    **dict.fromkeys((f"cap.{each}Schedule" for each in ("create", "pause", "resume", "delete")), REQUESTERS),
    "aicf.getBalance": EVERYBODY - {"nobody"},
    **dict.fromkeys(("queue.pause", "queue.resume", "job.requeue", "gc.run"), OPERATORS),
    "gc.getStatus": READERS,
    "queue.getActivity": READERS,
    **dict.fromkeys((f"blob.{each}" for each in ("retry", "prune", "audit", "getAudit")), OPERATORS),
    **dict.fromkeys(("blob.listArchivable", "archive.getStatus"), READERS),
    **dict.fromkeys(("blob.getParts", "blob.getKey"), EVERYBODY - {"nobody"}),
    **dict.fromkeys(("validator.add", "validator.remove"), OPERATORS),
    "account.mint": OPERATORS,
    "account.reserve": OPERATORS,
    "account.charge": OPERATORS,
    "account.refund": OPERATORS,
    **dict.fromkeys((f"account.{each}" for each in ("deposit", "withdraw", "returnWithdrawal")), TREASURERS),
    **dict.fromkeys(("account.getAccount", "account.listTransfers"), OWNERS | TREASURERS),
    "account.listAccounts": READERS | TREASURERS,
    "policy.getPolicy": READERS,
    "policy.listHistory": READERS,
    "policy.apply": OPERATORS,
    "account.getReservation": OWNERS,
    "account.listReservations": OWNERS,
    "chain.rollBack": OPERATORS,
    "key.createKey": OPERATORS,
    "key.rotateKey": OPERATORS,
    "key.revokeKey": OPERATORS,
    "key.listKeys": READERS,
    "node.getStateDigest": READERS,
    "audit.listActions": READERS,
    "provider.listRules": READERS,
    **dict.fromkeys((f"evidence.{each}" for each in ("listSessions", "listRecords")), READERS),
    **dict.fromkeys((f"evidence.{each}" for each in ("listDeadLetters", "getDeadLetter")), READERS),
    **dict.fromkeys((f"evidence.{each}" for each in ("resolveDeadLetter", "sealSession", "setOwner")), OPERATORS),
    **dict.fromkeys((f"provider.{each}" for each in ("stake", "unstake", "drain", "undrain", "retire")), THEIRS),
    **dict.fromkeys((f"provider.{each}" for each in ("jail", "unjail", "suspend", "recover")), OPERATORS),
    **dict.fromkeys((f"provider.{each}" for each in ("allow", "deny", "unsetRule", "invite")), OPERATORS),
}
"""Written down a second time: whoever is not named here may look, and only look."""


@pytest.mark.rule("RPC-001")
@pytest.mark.parametrize("method", METHODS)
async def test_who_may_call_what(method: str) -> None:
    async with rpc_node() as house:
        for name, visitor in CALLERS.items():
            said = await house.raw(visitor, method)
            error = said.get("error", {"data": {"name": ""}})["data"]
            is_let_in = error["name"] not in ("Unauthorized", "Forbidden")
            assert is_let_in is (name in WHO.get(method, EVERYBODY)), (method, name, said)
            if not is_let_in:
                assert error["rule"] == "SEC-001"
                assert (error["name"] == "Unauthorized") is (name == "nobody")


def test_no_write_is_open_to_everybody() -> None:
    assert {name for name, method in METHODS.items() if method.is_write and not method.roles} == set()
    assert {name for name, method in METHODS.items() if method.is_write} <= set(WHO)


@pytest.mark.parametrize(
    ("scopes", "name", "is_allowed"),
    [
        ((), "key.createKey", True),
        (("key.*",), "key.createKey", True),
        (("key.createKey",), "key.createKey", True),
        (("cap.*", "key.createKey"), "key.createKey", True),
        (("key.makeMore",), "key.createKey", False),
        (("key.ma",), "key.createKey", False),
        (("ke.*",), "key.createKey", False),
        (("cap.*",), "key.createKey", False),
        (("cap.*",), "capital.gain", False),
    ],
)
def test_a_key_with_scopes_is_for_them_alone(scopes: tuple[str, ...], name: str, is_allowed: bool) -> None:
    no = why_not_allowed(Principal("x", Role.OPERATOR, scopes=scopes), name, METHODS["key.createKey"].roles)
    assert (no is None) is is_allowed
    if no is not None:
        assert (no.rule, no.name) == ("SEC-001", "Forbidden")


async def test_scopes_narrow_a_role_and_never_widen_it() -> None:
    async with rpc_node() as house:
        narrow = msgspec.structs.replace(OPERATOR, scopes=("chain.*",))
        assert (await house.refusal(narrow, "key.listKeys"))[0] == "Forbidden"
        await house.ask(narrow, "chain.rollBack", height=0)
        wide = msgspec.structs.replace(ALICE, scopes=("key.*", "account.*"))
        assert (await house.refusal(wide, "key.listKeys"))[0] == "Forbidden"
        assert (await house.ask(wide, "key.whoami"))["scopes"] == ["key.*", "account.*"]


async def test_a_key_lives_from_making_over_rotating_to_revoking_under_the_names_of_who_did_it() -> None:
    async with rpc_node() as house:
        made = await house.ask(OPERATOR, "key.createKey", id=ID, secret=HASH, role="requester", account="alice")
        assert house.last_batch() == [PrivilegedActRecorded(OPERATOR.name, "key.createKey", 1), house.last_batch()[1]]
        assert isinstance(house.last_batch()[1], KeyCreated)
        assert made == {"event": house.engine.undurable_state.last_event, "is_repeat": False}
        again = await house.ask(OPERATOR, "key.createKey", id=ID, secret=HASH, role="requester", account="alice")
        assert again == made | {"is_repeat": True}
        await house.ask(OPERATOR, "key.rotateKey", id=ID, secret="00" * 32, grace_ms=5)
        await house.ask(CALLERS["local"], "key.revokeKey", id=ID)
        assert house.privileged_acts() == [
            (OPERATOR.name, "key.createKey"),
            (OPERATOR.name, "key.rotateKey"),
            ("local", "key.revokeKey"),
        ]
        assert (await house.refusal(OPERATOR, "key.rotateKey", id=ID, secret="11" * 32))[1] == "SEC-001"
        assert (await house.refusal(OPERATOR, "key.revokeKey", id="f" * 16))[0] == "NotFound"


async def test_a_list_of_keys_shows_no_secret_and_no_hash_of_one() -> None:
    async with rpc_node() as house:
        for number, role in enumerate(("operator", "auditor", "provider")):
            id_ = f"{number:016x}"
            await house.ask(OPERATOR, "key.createKey", id=id_, secret=HASH, role=role, label=f"for {role}")
        await house.ask(OPERATOR, "key.rotateKey", id=id_, secret="22" * 32, grace_ms=9)
        listed = await house.ask(AUDITOR, "key.listKeys")
        assert [key["label"] for key in listed["keys"]] == ["for operator", "for auditor", "for provider"]
        assert HASH not in str(listed)
        assert "22" * 32 not in str(listed)
        assert listed["keys"][2]["rotated_until_ms"] == house.engine.replication_status().tip.time_ms + 9


@pytest.mark.parametrize("scope", ["node.getMetrics", "events.subscribe", "events.*"])
async def test_a_scope_may_name_what_is_not_in_the_table_of_methods(scope: str) -> None:
    async with rpc_node() as house:
        await house.ask(OPERATOR, "key.createKey", id=ID, secret=HASH, role="operator", scopes=[scope])
        assert (await house.ask(OPERATOR, "key.listKeys"))["keys"][0]["scopes"] == [scope]


@pytest.mark.parametrize(
    ("scope", "hint"), [("cap.enqeue", "did you mean cap.enqueue?"), ("capp.*", "did you mean cap.*?"), ("x", "")]
)
async def test_a_scope_for_no_method_is_refused_with_the_nearest(scope: str, hint: str) -> None:
    async with rpc_node() as house:
        params = {"id": ID, "secret": HASH, "role": "operator", "scopes": ["key.*", scope]}
        said = (await house.raw(OPERATOR, "key.createKey", **params))["error"]
        assert said["data"]["name"] == "InvalidParams"
        assert hint in said["data"]["hint"]
        assert house.privileged_acts() == []


async def test_a_token_becomes_the_principal_whose_key_it_is() -> None:
    async with rpc_node() as house:
        await house.ask(
            OPERATOR, "key.createKey", id=ID, secret=HASH, role="requester", account="alice", scopes=["cap.*"]
        )
        found = await TokenAuthenticator(house.access, house.world.clock).authenticate(f"hf_{ID}_{SECRET}")
        assert found == Principal(ID, Role.REQUESTER, AccountId("alice"), scopes=("cap.*",))
        assert (await TokenAuthenticator(house.access, house.world.clock).authenticate(None)) == CALLERS["nobody"]


@pytest.mark.parametrize(
    "token",
    [
        "",
        SECRET,
        f"hf_{ID}",
        f"hf_{ID}_short",
        f"hf_{ID.upper()}_{SECRET}",
        f"hf_{ID}_{SECRET}\n",
        f"hf_{ID}_{SECRET}!",
    ],
)
async def test_what_is_no_token_is_refused_and_not_repeated(token: str) -> None:
    async with rpc_node() as house:
        await house.ask(OPERATOR, "key.createKey", id=ID, secret=HASH, role="auditor")
        found = await TokenAuthenticator(house.access, house.world.clock).authenticate(token)
        assert isinstance(found, Refused)
        assert found.name == "Unauthorized"
        assert SECRET not in repr(found)


async def test_a_key_ends_by_the_later_of_wall_clock_and_last_batch() -> None:
    async with rpc_node() as house:
        now_ms = house.world.clock.wall
        told = {"id": ID, "secret": HASH, "role": "auditor", "expires_ms": now_ms + 100}
        await house.ask(OPERATOR, "key.createKey", **told)
        token, clock = f"hf_{ID}_{SECRET}", house.world.clock
        clock.wall = now_ms + 99
        assert isinstance(await TokenAuthenticator(house.access, clock).authenticate(token), Principal)
        clock.wall = now_ms + 100
        assert isinstance(await TokenAuthenticator(house.access, clock).authenticate(token), Refused)
        clock.wall = 0  # a clock set back does not open it again
        clock.monotonic += 100
        await house.mint()
        assert isinstance(await TokenAuthenticator(house.access, clock).authenticate(token), Refused)


async def test_a_key_that_is_limited_to_some_methods_creates_none_that_reaches_further() -> None:
    narrow = msgspec.structs.replace(OPERATOR, scopes=("key.*", "cap.*"))
    wide = {"id": ID, "secret": HASH, "role": "operator"}
    async with rpc_node() as house:
        for scopes in ([], ["account.mint"], ["cap.*", "chain.*"]):
            assert (await house.refusal(narrow, "key.createKey", **wide, scopes=scopes))[0] == "Forbidden"
        await house.ask(narrow, "key.createKey", **wide, scopes=["cap.enqueue", "key.*"])
        await house.ask(narrow, "key.rotateKey", id=ID, secret="ab" * 32)
        await house.ask(OPERATOR, "key.createKey", **(wide | {"id": "f" * 16}))
        assert (await house.refusal(narrow, "key.rotateKey", id="f" * 16, secret="cd" * 32))[0] == "Forbidden"


@pytest.mark.rule("PRV-001")
async def test_the_holder_of_a_providers_key_moves_its_own_money_and_nobody_elses() -> None:
    """The whole way: the key is made, its token shown, and what it may do follows from what was made."""
    async with rpc_node() as house:
        for number, account in ((1, "oak"), (2, "elm")):
            told = (account, AccountId(account), canonical({"AI": {"models": ["echo"]}}), "eu", 3, 4, YEAR_MS)
            assert isinstance(await house.access.submit(Register(public(number), *told)), Accepted)
            await house.mint(account, 20_000, number)
        await house.ask(OPERATOR, "key.createKey", id=ID, secret=HASH, role="provider", account="oak")
        oak = await TokenAuthenticator(house.access, house.world.clock).authenticate(f"hf_{ID}_{SECRET}")
        assert isinstance(oak, Principal)
        stake = {"amount": 10_000, "request": "33" * 32}
        await house.ask(oak, "provider.stake", provider_id=provider_id(public(1)).hex(), **stake)
        assert (await house.ask(oak, "aicf.getBalance"))["held"] == 10_000
        no = await house.refusal(oak, "provider.stake", provider_id=provider_id(public(2)).hex(), **stake)
        assert no[:2] == ("Forbidden", "SEC-001")
