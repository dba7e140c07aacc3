"""Keys at the doors: who may call what, within which scopes, and every privileged act under a name."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.ways import YEAR_MS, public
from tests.doors.visitors import ALICE, AUDITOR, OPERATOR, VISITORS, node

from holdfast.core.act import ActDone
from holdfast.core.canon import canonical
from holdfast.core.key import KeyMade, Role, secret_hash
from holdfast.core.provider.acts import Register
from holdfast.core.provider.record import provider_id
from holdfast.core.refusal import Refused
from holdfast.core.values import AccountId
from holdfast.doors.desk import Method, Visitor, why_not_allowed
from holdfast.doors.identify import identify
from holdfast.doors.methods import METHODS
from holdfast.engine.outcome import Accepted

pytestmark = pytest.mark.rule("SEC-001")
ID, SECRET = "0123456789abcdef", "correct-horse-battery-staple"
HASH = secret_hash(SECRET.encode()).hex()

EVERYBODY = frozenset(VISITORS)
OPERATORS = frozenset({"operator", "local"})
REQUESTERS = OPERATORS | {"requester"}
READERS = OPERATORS | {"auditor"}
OWNERS = REQUESTERS | READERS
THEIRS = OPERATORS | {"provider"}
WHO = {
    "cap.enqueue": REQUESTERS,
    "cap.cancel": REQUESTERS,
    "cap.raiseFee": REQUESTERS,
    "cap.consumeResult": REQUESTERS,
    **dict.fromkeys(("cap.quote", "cap.readResult", "job.deadLetters"), OWNERS),
    "aicf.getBalance": OWNERS | THEIRS,
    **dict.fromkeys(("queue.pause", "queue.resume", "job.requeue", "gc.run"), OPERATORS),
    "gc.status": READERS,
    "account.mint": OPERATORS,
    "account.reserve": OPERATORS,
    "account.charge": OPERATORS,
    "account.refund": OPERATORS,
    "account.show": OWNERS,
    "account.list": READERS,
    "hold.show": OWNERS,
    "hold.list": OWNERS,
    "chain.rollBack": OPERATORS,
    "key.make": OPERATORS,
    "key.rotate": OPERATORS,
    "key.revoke": OPERATORS,
    "key.list": READERS,
    "node.digest": READERS,
    "provider.lists": READERS,
    **dict.fromkeys((f"evidence.{each}" for each in ("listSessions", "getRecords")), READERS),
    **dict.fromkeys((f"evidence.{each}" for each in ("listDeadLetters", "getDeadLetter")), READERS),
    **dict.fromkeys((f"evidence.{each}" for each in ("release", "seal", "assign")), OPERATORS),
    **dict.fromkeys((f"provider.{each}" for each in ("stake", "unstake", "drain", "undrain", "retire")), THEIRS),
    **dict.fromkeys((f"provider.{each}" for each in ("jail", "unjail", "suspend", "recover")), OPERATORS),
    **dict.fromkeys((f"provider.{each}" for each in ("allow", "deny", "unlist")), OPERATORS),
}
"""Written down a second time: whoever is not named here may look, and only look."""


@pytest.mark.rule("RPC-001")
@pytest.mark.parametrize("method", METHODS)
async def test_who_may_call_what(method: str) -> None:
    async with node() as house:
        for name, visitor in VISITORS.items():
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
        ((), "key.make", True),
        (("key.*",), "key.make", True),
        (("key.make",), "key.make", True),
        (("cap.*", "key.make"), "key.make", True),
        (("key.makeMore",), "key.make", False),
        (("key.ma",), "key.make", False),
        (("ke.*",), "key.make", False),
        (("cap.*",), "key.make", False),
        (("cap.*",), "capital.gain", False),
    ],
)
def test_a_key_with_scopes_is_for_them_alone(scopes: tuple[str, ...], name: str, is_allowed: bool) -> None:
    method: Method = METHODS["key.make"]
    no = why_not_allowed(Visitor("x", Role.OPERATOR, scopes=scopes), name, method)
    assert (no is None) is is_allowed
    if no is not None:
        assert (no.rule, no.name) == ("SEC-001", "Forbidden")


async def test_scopes_narrow_a_role_and_never_widen_it() -> None:
    async with node() as house:
        narrow = msgspec.structs.replace(OPERATOR, scopes=("chain.*",))
        assert (await house.no(narrow, "key.list"))[0] == "Forbidden"
        await house.ask(narrow, "chain.rollBack", height=0)
        wide = msgspec.structs.replace(ALICE, scopes=("key.*", "account.*"))
        assert (await house.no(wide, "key.list"))[0] == "Forbidden"
        assert (await house.ask(wide, "key.whoami"))["scopes"] == ["key.*", "account.*"]


async def test_a_key_lives_from_making_over_rotating_to_revoking_under_the_names_of_who_did_it() -> None:
    async with node() as house:
        made = await house.ask(OPERATOR, "key.make", id=ID, secret=HASH, role="requester", account="alice")
        assert house.last_batch() == [ActDone(OPERATOR.name, "key.make", 1), house.last_batch()[1]]
        assert isinstance(house.last_batch()[1], KeyMade)
        assert made == {"event": house.engine.state.last_event, "is_repeat": False}
        again = await house.ask(OPERATOR, "key.make", id=ID, secret=HASH, role="requester", account="alice")
        assert again == made | {"is_repeat": True}
        await house.ask(OPERATOR, "key.rotate", id=ID, secret="00" * 32, grace_ms=5)
        await house.ask(VISITORS["local"], "key.revoke", id=ID)
        assert house.acts() == [
            (OPERATOR.name, "key.make"),
            (OPERATOR.name, "key.rotate"),
            ("local", "key.revoke"),
        ]
        assert (await house.no(OPERATOR, "key.rotate", id=ID, secret="11" * 32))[1] == "SEC-001"
        assert (await house.no(OPERATOR, "key.revoke", id="f" * 16))[0] == "NotFound"


async def test_a_list_of_keys_shows_no_secret_and_no_hash_of_one() -> None:
    async with node() as house:
        for number, role in enumerate(("operator", "auditor", "provider")):
            id_ = f"{number:016x}"
            await house.ask(OPERATOR, "key.make", id=id_, secret=HASH, role=role, label=f"for {role}")
        await house.ask(OPERATOR, "key.rotate", id=id_, secret="22" * 32, grace_ms=9)
        listed = await house.ask(AUDITOR, "key.list")
        assert [key["label"] for key in listed["keys"]] == ["for operator", "for auditor", "for provider"]
        assert HASH not in str(listed)
        assert "22" * 32 not in str(listed)
        assert listed["keys"][2]["rotated_until_ms"] == house.engine.standing().tip.time_ms + 9


@pytest.mark.parametrize(
    ("scope", "hint"), [("cap.enqeue", "did you mean cap.enqueue?"), ("capp.*", "did you mean cap.*?"), ("x", "")]
)
async def test_a_scope_for_no_method_is_refused_with_the_nearest(scope: str, hint: str) -> None:
    async with node() as house:
        params = {"id": ID, "secret": HASH, "role": "operator", "scopes": ["key.*", scope]}
        said = (await house.raw(OPERATOR, "key.make", **params))["error"]
        assert said["data"]["name"] == "InvalidParams"
        assert hint in said["data"]["hint"]
        assert house.acts() == []


async def test_a_token_becomes_the_visitor_whose_key_it_is() -> None:
    async with node() as house:
        await house.ask(OPERATOR, "key.make", id=ID, secret=HASH, role="requester", account="alice", scopes=["cap.*"])
        found = await identify(house.desk, house.world.clock, f"hf_{ID}_{SECRET}")
        assert found == Visitor(ID, Role.REQUESTER, AccountId("alice"), scopes=("cap.*",))
        assert (await identify(house.desk, house.world.clock, None)) == VISITORS["nobody"]


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
    async with node() as house:
        await house.ask(OPERATOR, "key.make", id=ID, secret=HASH, role="auditor")
        found = await identify(house.desk, house.world.clock, token)
        assert isinstance(found, Refused)
        assert found.name == "Unauthorized"
        assert SECRET not in repr(found)


async def test_a_key_ends_by_the_later_of_wall_clock_and_last_batch() -> None:
    async with node() as house:
        now_ms = house.world.clock.wall
        told = {"id": ID, "secret": HASH, "role": "auditor", "expires_ms": now_ms + 100}
        await house.ask(OPERATOR, "key.make", **told)
        token, clock = f"hf_{ID}_{SECRET}", house.world.clock
        clock.wall = now_ms + 99
        assert isinstance(await identify(house.desk, clock, token), Visitor)
        clock.wall = now_ms + 100
        assert isinstance(await identify(house.desk, clock, token), Refused)
        clock.wall = 0  # a clock set back does not open it again
        clock.monotonic += 100
        await house.mint()
        assert isinstance(await identify(house.desk, clock, token), Refused)


async def test_a_key_that_is_held_to_some_methods_hands_out_none_that_reaches_further() -> None:
    narrow = msgspec.structs.replace(OPERATOR, scopes=("key.*", "cap.*"))
    wide = {"id": ID, "secret": HASH, "role": "operator"}
    async with node() as house:
        for scopes in ([], ["account.mint"], ["cap.*", "chain.*"]):
            assert (await house.no(narrow, "key.make", **wide, scopes=scopes))[0] == "Forbidden"
        await house.ask(narrow, "key.make", **wide, scopes=["cap.enqueue", "key.*"])
        await house.ask(narrow, "key.rotate", id=ID, secret="ab" * 32)
        await house.ask(OPERATOR, "key.make", **(wide | {"id": "f" * 16}))
        assert (await house.no(narrow, "key.rotate", id="f" * 16, secret="cd" * 32))[0] == "Forbidden"


@pytest.mark.rule("PRV-001")
async def test_the_holder_of_a_providers_key_moves_its_own_money_and_nobody_elses() -> None:
    """The whole way: the key is made, its token shown, and what it may do follows from what was made."""
    async with node() as house:
        for number, account in ((1, "oak"), (2, "elm")):
            told = (account, AccountId(account), canonical({"AI": {"models": ["echo"]}}), "eu", 3, 4, YEAR_MS)
            assert isinstance(await house.desk.submit(Register(public(number), *told)), Accepted)
            await house.mint(account, 20_000, number)
        await house.ask(OPERATOR, "key.make", id=ID, secret=HASH, role="provider", account="oak")
        oak = await identify(house.desk, house.world.clock, f"hf_{ID}_{SECRET}")
        assert isinstance(oak, Visitor)
        stake = {"amount": 10_000, "request": "33" * 32}
        await house.ask(oak, "provider.stake", provider_id=provider_id(public(1)).hex(), **stake)
        assert (await house.ask(oak, "aicf.getBalance"))["held"] == 10_000
        no = await house.no(oak, "provider.stake", provider_id=provider_id(public(2)).hex(), **stake)
        assert no[:2] == ("Forbidden", "SEC-001")
