"""Keys as an operator handles them: made, shown once, used, rotated, revoked, and every act under a name."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.stories.node import QUIET_CHAIN
from tests.stories.telling import Told, holdfast, told

pytestmark = pytest.mark.rule("SEC-001")
TOKEN = re.compile(r"hf_([0-9a-f]{16})_[A-Za-z0-9_-]{43}\n")


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Told]:
    async with told(tmp_path, chain=QUIET_CHAIN) as running:
        yield running


async def made(node: Told, *words: object) -> tuple[str, str]:
    """Token and id of a new key."""
    said = await node.say("key", "new", *words)
    assert said.code == 0, said.err
    found = TOKEN.fullmatch(said.out)
    assert found, "the token alone is on standard output"
    return said.out.strip(), found[1]


async def test_a_token_is_shown_once_opens_the_door_and_is_stored_nowhere(node: Told) -> None:
    token, id_ = await made(node, "--account", "alice", "--tier", "PRO", "--label", "laptop")
    _, _, secret = token.split("_", 2)  # it may have this sign, too
    who = (await node.call(token, "key", "whoami", "--json")).json
    assert (who["name"], who["role"], who["account"], who["tier"]) == (id_, "requester", "alice", "PRO")
    assert await node.node.stop() == 0
    stored = [path for path in node.node.data.rglob("*") if path.is_file()]
    assert stored
    assert [path for path in stored if secret.encode() in path.read_bytes()] == []
    assert secret not in node.node.log()
    await node.node.up()
    assert (await node.call(token, "key", "whoami")).code == 0, "and after a restart it is good as before"


async def test_whoever_opens_the_socket_is_an_operator_and_whoever_shows_nothing_is_nobody(node: Told) -> None:
    assert (await node.say("key", "whoami", "--json")).json["role"] == "operator"
    assert (await node.call(None, "key", "whoami", "--json")).json["name"] == "nobody"
    refused = await node.call(None, "key", "list")
    assert (refused.code, refused.out) == (77, "")
    assert "needs a key" in refused.err


async def test_a_rotated_key_knows_its_old_token_as_long_as_told_and_a_revoked_one_none(node: Told) -> None:
    old, id_ = await made(node, "--account", "alice")
    rotated = await node.say("key", "rotate", id_, "--grace", "1h")
    new = rotated.out.strip()
    assert new != old
    assert [(await node.call(token, "key", "whoami")).code for token in (old, new)] == [0, 0]
    newest = (await node.say("key", "rotate", id_, "--grace", "0s")).out.strip()
    assert [(await node.call(token, "key", "whoami")).code for token in (old, new, newest)] == [77, 77, 0]
    assert (await node.say("key", "revoke", id_)).code == 0
    refused = await node.call(newest, "key", "whoami")
    assert (refused.code, "was revoked" in refused.err) == (77, True)
    assert "as before" in (await node.say("key", "revoke", id_)).out
    assert "revoked" in (await node.say("key", "list")).out


async def test_a_key_does_what_its_role_and_scopes_allow_and_no_more(node: Told) -> None:
    auditor, _ = await made(node, "--role", "auditor")
    scoped, _ = await made(node, "--role", "operator", "--scope", "account.*", "--scope", "key.list")
    assert (await node.call(auditor, "key", "list")).code == 0
    assert (await node.call(auditor, "key", "new", "--account", "eve")).code == 77
    assert (await node.call(scoped, "key", "list")).code == 0
    refused = await node.call(scoped, "key", "new", "--account", "eve")
    assert (refused.code, refused.out) == (77, "")
    assert "outside of this key's scopes" in refused.err
    operator, _ = await made(node, "--role", "operator")
    assert TOKEN.fullmatch((await node.call(operator, "key", "new", "--account", "bob")).out)


async def test_a_token_goes_into_a_file_for_its_owner_alone_and_never_over_another(node: Told, tmp_path: Path) -> None:
    file = tmp_path / "token"
    said = await node.say("key", "new", "--account", "alice", "--output", file)
    assert (said.code, said.out) == (0, "")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    token = file.read_text()
    assert TOKEN.fullmatch(token)
    who = await node.call(None, "key", "whoami", "--token-file", file, "--json")
    assert who.json["account"] == "alice"
    again = await node.say("key", "new", "--account", "alice", "--output", file)
    assert (again.code, "is there already" in again.err) == (75, True)
    assert file.read_text() == token
    assert len((await node.say("key", "list", "--json")).json["keys"]) == 1, "nothing was made"
    refused = await node.say("key", "new", "--output", tmp_path / "other")
    assert (refused.code, (tmp_path / "other").exists()) == (2, False)
    file.chmod(0o644)
    assert "chmod 600" in (await node.call(None, "key", "whoami", "--token-file", file)).err


WRONG = [
    (("new",), "account: a requester's key needs one"),
    (("new", "--role", "auditor", "--account", "alice"), "only a requester's or a provider's key has one"),
    (("new", "--account", "alice", "--expires", "tomorrow"), "--expires: 'tomorrow' is no length of time"),
    (("new", "--account", "alice", "--expires", "0d"), "expires_ms: is past already"),
    (("new", "--account", "alice", "--expires", "60000000000d"), "expires_ms: too far ahead"),
    (("new", "--account", "alice", "--expires", "999999999999999d"), "expires_ms: must fit into 64 bits"),
    (("new", "--account", "alice", "--scope", "cap.enque"), "did you mean cap.enqueue?"),
    (("new", "--role", "emperor"), "'emperor'"),
    (("rotate", "0" * 16, "--grace", "31d"), "no key"),
    (("rotate", "0" * 16, "--grace", "-1h"), "--grace: '-1h' is no length of time"),
    (("revoke", "nobody"), "no key 'nobody'"),
]


async def test_what_cannot_be_is_named_and_makes_no_key(node: Told) -> None:
    for words, says in WRONG:
        refused = await node.say("key", *words)
        assert refused.code in (1, 2), words
        assert refused.out == "", words
        assert says in refused.err
    assert (await node.say("key", "list", "--json")).json["keys"] == []


async def test_a_key_may_outlive_the_calendar(node: Told) -> None:
    await made(node, "--account", "alice", "--expires", "4000000d")
    assert "good until after the year 9999" in (await node.say("key", "list")).out


async def test_expiry_is_as_long_from_now_as_was_said(node: Told) -> None:
    lengths = {"90s": 90_000, "90m": 5_400_000, "12h": 43_200_000, "30d": 2_592_000_000}
    for written in lengths:
        await made(node, "--account", "alice", "--expires", written)
    keys = (await node.say("key", "list", "--json")).json["keys"]
    for key, ms in zip(keys, lengths.values(), strict=True):
        assert 0 <= key["made_ms"] + ms - key["expires_ms"] < 60_000


async def test_every_privileged_act_stands_under_a_name_with_what_followed(node: Told) -> None:
    operator, id_ = await made(node, "--role", "operator")
    token, _ = await made(node, "--account", "alice")
    assert (await node.say("account", "mint", "alice", 1_000)).code == 0
    other = (await node.call(operator, "key", "new", "--role", "auditor")).out.strip()
    await node.call(token, "job", "enqueue", "--model", "m", "--prompt", "p", "--max-fee", "10")
    lines = (await node.say("audit", "acts", "--json")).out.splitlines()
    acts = [json.loads(line) for line in lines]
    assert [(act["actor"], act["method"]) for act in acts] == [
        ("local", "key.make"),
        ("local", "key.make"),
        ("local", "account.mint"),
        (id_, "key.make"),
    ]
    assert [event["type"] for act in acts for event in act["events"]] == ["KeyMade", "KeyMade", "Minted", "KeyMade"]
    assert "secret" not in json.dumps(acts)
    assert acts[-1]["events"][0]["event"]["id"] == other.split("_")[1]
    later = (await node.say("audit", "acts", "--after", acts[2]["number"], "--json")).out.splitlines()
    assert [json.loads(line) for line in later] == acts[3:]
    shown = await node.say("audit", "acts", "--actor", id_)
    assert ("key.make" in shown.out, "account.mint" in shown.out) == (True, False)
    assert (await node.say("audit", "acts", "--after", 10**6)).out == "no acts\n"


def test_without_a_node_it_is_said_in_one_sentence(tmp_path: Path) -> None:
    said = holdfast("key", "list", "--data", tmp_path)
    assert said.code == 75
    assert "holdfast up" in said.err
    assert "Traceback" not in said.err
    gone = holdfast("key", "list", "--url", "http://127.0.0.1:1")
    assert (gone.code, "no answer from http://127.0.0.1:1" in gone.err) == (75, True)
    for url in ("localhost:1", "http://x:99999", "http://127.0.0.1:abc", "http://[::1", "http://:80"):
        said = holdfast("key", "list", "--url", url)
        assert (said.code, "is no address" in said.err, "Traceback" in said.err) == (75, True, False), url
    assert "no answer from" in holdfast("key", "list", "--url", "http://a..b:80").err


@pytest.mark.parametrize("token", ["hf_swordfish\nx", "hf_swordfish x", "hf_swordfish\N{EURO SIGN}"])
def test_what_cannot_be_a_token_is_refused_and_not_repeated(token: str) -> None:
    said = holdfast("key", "list", "--url", "http://127.0.0.1:1", environ={"HOLDFAST_TOKEN": token})
    assert (said.code, "HOLDFAST_TOKEN holds no token" in said.err) == (75, True)
    assert "swordfish" not in said.err
