"""`holdfast key`: who may speak to the node over the network (SEC-001). A token is shown once and stored nowhere."""

from __future__ import annotations

import secrets
import sys
import time
from pathlib import Path
from typing import Annotated, Final

import typer

from holdfast.adapters.keys.secretfile import write_new
from holdfast.cli import verb
from holdfast.cli.asking import Asked, Ca, Data, Json, Place, TokenFile, Url, ask, run
from holdfast.cli.columns import print_json, print_record, print_table, when
from holdfast.cli.durations import milliseconds
from holdfast.client import NodeRefused
from holdfast.core.key import Role, secret_hash
from holdfast.core.refusal import Unavailable
from holdfast.core.values import Tier

app = verb(no_args_is_help=True, help="Let people and programs in over the network, and out again.")
SECRET_BYTES: Final = 32

Id = Annotated[str, typer.Argument(metavar="ID", help="The key's id, as `holdfast key list` shows it.")]
Output = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the token into this new file instead of printing it.")
]


@app.command()
def new(
    role: Annotated[Role, typer.Option(help="What its holder is to the network.")] = Role.REQUESTER,
    account: Annotated[
        str | None,
        typer.Option(help="Whose money a requester spends, or whose providers a provider moves; for example alice."),
    ] = None,
    tier: Annotated[Tier, typer.Option(help="What a requester has subscribed to.")] = Tier.FREE,
    scope: Annotated[
        list[str] | None, typer.Option(help="Only this method or group, for example cap.*; several are allowed.")
    ] = None,
    expires: Annotated[str | None, typer.Option(help="After 90m, 12h or 30d. [default: never]")] = None,
    label: Annotated[str, typer.Option(help="For whom or what, in your words.")] = "",
    output: Output = None,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Make a key and print its token, once, alone on standard output: TOKEN=$(holdfast key new --account alice)

    The secret is drawn here and only its hash is sent, so nobody else ever has it; who loses the token rotates the key.
    """
    id_, secret = secrets.token_hex(8), _secret()
    expires_ms = None if expires is None else _now_ms() + milliseconds("--expires", expires)
    asked: dict[str, object] = {
        "id": id_,
        "secret": _hash(secret),
        "role": role.value,
        "account": account,
        "tier": tier.value,
        "scopes": scope or [],
        "label": label,
        "expires_ms": expires_ms,
    }

    async def make(node: Asked) -> None:
        await _with_token(f"hf_{id_}_{secret}", output, node, "key.make", asked)

    run(Place(data, url, token_file, ca), make)
    until = "never expires" if expires_ms is None else f"expires {when(expires_ms)}"
    _say(f"key {id_}: {role}{f' of {account}' if account else ''}, {until}; the token is shown only now")


@app.command("list")
def list_(
    data: Data = None, url: Url = None, token_file: TokenFile = None, ca: Ca = None, as_json: Json = False
) -> None:
    """All keys, oldest first, without their secrets."""
    found = ask(Place(data, url, token_file, ca), "key.list")
    if as_json:
        print_json(found)
        return
    heads = ("ID", "ROLE", "ACCOUNT", "TIER", "SCOPES", "STATE", "MADE", "LABEL")
    rows = [
        (
            key["id"],
            key["role"],
            key["account"],
            key["tier"] if key["account"] else None,
            " ".join(key["scopes"]),
            _state(key["revoked_ms"], key["expires_ms"], key["rotated_until_ms"]),
            when(key["made_ms"]),
            key["label"],
        )
        for key in found["keys"]
    ]
    print_table(heads, rows)


@app.command()
def rotate(
    id_: Id,
    grace: Annotated[str, typer.Option(help="How long the old token stays good, too: 90m, 12h, 30d.")] = "24h",
    output: Output = None,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Give a key another secret and print its new token, once; the old one stays good for a while."""
    secret, grace_ms = _secret(), milliseconds("--grace", grace)

    async def make(node: Asked) -> None:
        asked = {"id": id_, "secret": _hash(secret), "grace_ms": grace_ms}
        await _with_token(f"hf_{id_}_{secret}", output, node, "key.rotate", asked)

    run(Place(data, url, token_file, ca), make)
    _say(f"key {id_} has a new token; the old one is good until {when(_now_ms() + grace_ms)}")


@app.command()
def revoke(id_: Id, data: Data = None, url: Url = None, token_file: TokenFile = None, ca: Ca = None) -> None:
    """Let a key's holder in no longer, from now on."""
    done = ask(Place(data, url, token_file, ca), "key.revoke", id=id_)
    print(f"key {id_} opens nothing any more (event {done['event']}{', as before' if done['is_repeat'] else ''})")


@app.command()
def whoami(
    data: Data = None, url: Url = None, token_file: TokenFile = None, ca: Ca = None, as_json: Json = False
) -> None:
    """Whose key this is and what it may do; over the folder's socket, whoever may open it is an operator."""
    found = ask(Place(data, url, token_file, ca), "key.whoami")
    print_json(found) if as_json else print_record(found)


# ------------------------------------------------------------------------------------------------ secrets


def _secret() -> str:
    """32 random bytes as base64url: the text itself is what is hashed."""
    return secrets.token_urlsafe(SECRET_BYTES)


def _hash(secret: str) -> str:
    return secret_hash(secret.encode()).hex()


async def _with_token(token: str, output: Path | None, node: Asked, method: str, asked: dict[str, object]) -> None:
    """The token is safe before the node knows its hash: a crash leaves a token too many, never a key without one."""
    if output is None:
        await node.call(method, **asked)
        print(token, flush=True)
        return
    if output.is_dir():  # noqa: ASYNC240 - nobody else waits
        raise Unavailable("SEC-001", f"{output} is a folder", "name a file in it")
    if not write_new(output, f"{token}\n".encode()):
        raise Unavailable("SEC-001", f"{output} is there already", "nothing is overwritten: name another file")
    try:
        await node.call(method, **asked)
    except NodeRefused:
        output.unlink(missing_ok=True)  # noqa: ASYNC240 - nobody else waits
        raise


def _state(revoked_ms: int | None, expires_ms: int | None, rotated_until_ms: int | None) -> str:
    now_ms = _now_ms()
    if revoked_ms is not None:
        return f"revoked {when(revoked_ms)}"
    if expires_ms is not None and expires_ms <= now_ms:
        return f"expired {when(expires_ms)}"
    if rotated_until_ms is not None and rotated_until_ms > now_ms:
        return f"good, old token until {when(rotated_until_ms)}"
    return "good" if expires_ms is None else f"good until {when(expires_ms)}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _say(says: str) -> None:
    print(says, file=sys.stderr)
