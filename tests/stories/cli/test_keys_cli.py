"""Keys as an operator handles them: made, shown once, used, rotated, revoked, and every act under a name."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.stories.cli_runner import CliNode, holdfast, running_cli_node
from tests.stories.node_process import QUIET_CHAIN

pytestmark = pytest.mark.rule("SEC-001")
TOKEN = re.compile(r"hf_([0-9a-f]{16})_[A-Za-z0-9_-]{43}\n")


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[CliNode]:
    async with running_cli_node(tmp_path, chain=QUIET_CHAIN) as running:
        yield running


async def create_key(node: CliNode, *words: object) -> tuple[str, str]:
    """Token and id of a new key."""
    said = await node.run("key", "create", *words)
    assert said.code == 0, said.err
    found = TOKEN.fullmatch(said.out)
    assert found, "the token alone is on standard output"
    return said.out.strip(), found[1]


async def test_a_token_is_shown_once_authenticates_and_is_stored_nowhere(node: CliNode) -> None:
    token, id_ = await create_key(node, "--account", "alice", "--tier", "PRO", "--label", "laptop")
    _, _, secret = token.split("_", 2)  # it may have this sign, too
    who = (await node.run_over_http(token, "key", "whoami", "--json")).json
    assert (who["name"], who["role"], who["account"], who["tier"]) == (id_, "requester", "alice", "PRO")
    assert await node.node.stop() == 0
    stored = [path for path in node.node.data.rglob("*") if path.is_file()]
    assert stored
    assert [path for path in stored if secret.encode() in path.read_bytes()] == []
    assert secret not in node.node.log()
    await node.node.up()
    assert (await node.run_over_http(token, "key", "whoami")).code == 0, "and after a restart it is valid as before"


async def test_whoever_opens_the_socket_is_an_operator_and_without_a_token_one_is_anonymous(node: CliNode) -> None:
    assert (await node.run("key", "whoami", "--json")).json["role"] == "operator"
    assert (await node.run_over_http(None, "key", "whoami", "--json")).json["name"] == "anonymous"
    refused = await node.run_over_http(None, "key", "list")
    assert (refused.code, refused.out) == (77, "")
    assert "needs a key" in refused.err


async def test_a_rotated_key_accepts_its_old_token_for_the_given_time_and_a_revoked_one_none(node: CliNode) -> None:
    old, id_ = await create_key(node, "--account", "alice")
    rotated = await node.run("key", "rotate", id_, "--grace", "1h")
    new = rotated.out.strip()
    assert new != old
    assert [(await node.run_over_http(token, "key", "whoami")).code for token in (old, new)] == [0, 0]
    newest = (await node.run("key", "rotate", id_, "--grace", "0s")).out.strip()
    assert [(await node.run_over_http(token, "key", "whoami")).code for token in (old, new, newest)] == [77, 77, 0]
    assert (await node.run("key", "revoke", id_, "--yes")).code == 0
    refused = await node.run_over_http(newest, "key", "whoami")
    assert (refused.code, "was revoked" in refused.err) == (77, True)
    assert "as before" in (await node.run("key", "revoke", id_, "--yes")).out
    assert "revoked" in (await node.run("key", "list")).out


async def test_a_key_does_what_its_role_and_scopes_allow_and_no_more(node: CliNode) -> None:
    auditor, _ = await create_key(node, "--role", "auditor")
    scoped, _ = await create_key(node, "--role", "operator", "--scope", "account.*", "--scope", "key.listKeys")
    assert (await node.run_over_http(auditor, "key", "list")).code == 0
    assert (await node.run_over_http(auditor, "key", "create", "--account", "eve")).code == 77
    assert (await node.run_over_http(scoped, "key", "list")).code == 0
    refused = await node.run_over_http(scoped, "key", "create", "--account", "eve")
    assert (refused.code, refused.out) == (77, "")
    assert "outside of this key's scopes" in refused.err
    operator, _ = await create_key(node, "--role", "operator")
    assert TOKEN.fullmatch((await node.run_over_http(operator, "key", "create", "--account", "bob")).out)


async def test_a_token_goes_into_a_file_for_its_owner_alone_and_never_over_another(
    node: CliNode, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    said = await node.run("key", "create", "--account", "alice", "--output", file)
    assert (said.code, said.out) == (0, "")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    token = file.read_text()
    assert TOKEN.fullmatch(token)
    who = await node.run_over_http(None, "key", "whoami", "--token-file", file, "--json")
    assert who.json["account"] == "alice"
    again = await node.run("key", "create", "--account", "alice", "--output", file)
    assert (again.code, "already exists" in again.err) == (75, True)
    assert file.read_text() == token
    assert len((await node.run("key", "list", "--json")).json["keys"]) == 1, "nothing was made"
    refused = await node.run("key", "create", "--output", tmp_path / "other")
    assert (refused.code, (tmp_path / "other").exists()) == (2, False)
    file.chmod(0o644)
    assert "chmod 600" in (await node.run_over_http(None, "key", "whoami", "--token-file", file)).err


WRONG = [
    (("create",), "account: a requester's key needs one"),
    (("create", "--role", "auditor", "--account", "alice"), "only a requester's or a provider's key has one"),
    (("create", "--account", "alice", "--expires", "tomorrow"), "--expires: 'tomorrow' is not a duration"),
    (("create", "--account", "alice", "--expires", "0d"), "expires_ms: is past already"),
    (("create", "--account", "alice", "--expires", "60000000000d"), "expires_ms: too far ahead"),
    (("create", "--account", "alice", "--expires", "999999999999999d"), "expires_ms: must fit into 64 bits"),
    (("create", "--account", "alice", "--scope", "cap.enque"), "did you mean cap.enqueue?"),
    (("create", "--role", "emperor"), "'emperor'"),
    (("rotate", "0" * 16, "--grace", "31d"), "no key"),
    (("rotate", "0" * 16, "--grace", "-1h"), "--grace: '-1h' is not a duration"),
    (("revoke", "nobody"), "no key 'nobody'"),
]


async def test_invalid_arguments_are_named_and_create_no_key(node: CliNode) -> None:
    for words, says in WRONG:
        refused = await node.run("key", *words)
        assert refused.code in (1, 2), words
        assert refused.out == "", words
        assert says in refused.err
    assert (await node.run("key", "list", "--json")).json["keys"] == []


async def test_a_key_may_outlive_the_calendar(node: CliNode) -> None:
    await create_key(node, "--account", "alice", "--expires", "4000000d")
    assert "valid until after the year 9999" in (await node.run("key", "list")).out


async def test_expiry_is_as_long_from_now_as_was_said(node: CliNode) -> None:
    lengths = {"90s": 90_000, "90m": 5_400_000, "12h": 43_200_000, "30d": 2_592_000_000}
    for written in lengths:
        await create_key(node, "--account", "alice", "--expires", written)
    keys = (await node.run("key", "list", "--json")).json["keys"]
    for key, ms in zip(keys, lengths.values(), strict=True):
        assert 0 <= key["made_ms"] + ms - key["expires_ms"] < 60_000


async def test_every_privileged_act_is_recorded_under_a_name_with_its_events(node: CliNode) -> None:
    operator, id_ = await create_key(node, "--role", "operator")
    token, _ = await create_key(node, "--account", "alice")
    assert (await node.run("account", "mint", "alice", 1_000)).code == 0
    other = (await node.run_over_http(operator, "key", "create", "--role", "auditor")).out.strip()
    await node.run_over_http(token, "job", "enqueue", "--model", "m", "--prompt", "p", "--max-fee", "10")
    lines = (await node.run("audit", "log", "--json")).out.splitlines()
    acts = [json.loads(line) for line in reversed(lines)]
    assert [(act["actor"], act["method"]) for act in acts] == [
        ("local", "key.createKey"),
        ("local", "key.createKey"),
        ("local", "account.mint"),
        (id_, "key.createKey"),
    ]
    assert [event["type"] for act in acts for event in act["events"]] == [
        "keyCreated",
        "keyCreated",
        "minted",
        "keyCreated",
    ]
    assert "secret" not in json.dumps(acts)
    assert acts[-1]["events"][0]["event"]["id"] == other.split("_")[1]
    since = ("audit", "log", "--oldest-first", "--after", acts[2]["number"], "--json")
    assert [json.loads(line) for line in (await node.run(*since)).out.splitlines()] == acts[3:]
    first = await node.run("audit", "log", "--limit", 1)
    assert ("account.mint" in first.out, first.err) == (False, f"more: --after {acts[3]['number']}\n")
    shown = await node.run("audit", "log", "--actor", id_)
    assert ("key.createKey" in shown.out, "account.mint" in shown.out) == (True, False)
    assert (await node.run("audit", "log", "--oldest-first", "--after", acts[3]["number"])).out.startswith("no priv")
    assert (await node.run("audit", "log", "--after", 10**6)).code == 1


async def test_log_events_and_rollback_work_over_http_with_a_key_of_the_right_role(node: CliNode) -> None:
    operator, auditor = [await create_key(node, "--role", role) for role in ("operator", "auditor")]
    requester, _ = await create_key(node, "--account", "alice")
    assert (await node.run("account", "mint", "alice", 1_000)).code == 0
    assert (await node.run("account", "mint", "bob", 1_000)).code == 0
    log, events = ("audit", "log"), ("events", "--no-follow", "--type", "minted", "--type", "keyCreated")
    rollback = ("chain", "rollback", 0, "--yes", "--json")
    for token in (operator[0], auditor[0]):
        assert (await node.run_over_http(token, *log, "--json")).out == (await node.run(*log, "--json")).out
        assert (await node.run_over_http(token, *events)).out == (await node.run(*events)).out
    for unfit in (requester, auditor[0], None):
        refused = await node.run_over_http(unfit, *rollback)
        assert (refused.code, "SEC-001" in refused.err) == (77, True), refused.err
    assert (await node.run_over_http(requester, *log)).code == 77
    assert "HOLDFAST_TOKEN, or pass --token-file" in (await node.run_over_http(None, *log)).err
    own = [json.loads(line) for line in (await node.run_over_http(requester, *events)).out.splitlines()]
    assert [(each["type"], each["event"].get("owner")) for each in own if each["type"] == "minted"] == [
        ("minted", "alice")
    ]
    done = await node.run_over_http(operator[0], *rollback)
    assert (done.code, done.json["to_height"]) == (0, 0), done.err


def test_without_a_node_it_is_said_in_one_sentence(tmp_path: Path) -> None:
    said = holdfast("key", "list", "--data", tmp_path)
    assert said.code == 75
    assert "holdfast up" in said.err
    assert "Traceback" not in said.err
    nowhere = holdfast("key", "list", "--data", tmp_path / "nowhere")
    assert (nowhere.code, "no folder" in nowhere.err, "holdfast init" in nowhere.err) == (75, True, True)
    gone = holdfast("key", "list", "--url", "http://127.0.0.1:1")
    assert (gone.code, "no answer from http://127.0.0.1:1" in gone.err) == (75, True)
    for url in ("localhost:1", "http://x:99999", "http://127.0.0.1:abc", "http://[::1", "http://:80"):
        said = holdfast("key", "list", "--url", url)
        assert (said.code, "is not a URL" in said.err, "Traceback" in said.err) == (75, True, False), url
    assert "no answer from" in holdfast("key", "list", "--url", "http://a..b:80").err


@pytest.mark.parametrize("token", ["hf_swordfish\nx", "hf_swordfish x", "hf_swordfish\N{EURO SIGN}"])
def test_what_cannot_be_a_token_is_refused_and_not_repeated(token: str) -> None:
    said = holdfast("key", "list", "--url", "http://127.0.0.1:1", environ={"HOLDFAST_TOKEN": token})
    assert (said.code, "HOLDFAST_TOKEN does not contain a token" in said.err) == (75, True)
    assert "swordfish" not in said.err
