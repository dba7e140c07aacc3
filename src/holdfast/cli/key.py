"""`holdfast key`: API keys for the network APIs (SEC-001). A token is shown once and stored nowhere."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from holdfast.adapters.keys.secret_file import write_new
from holdfast.cli import make_app
from holdfast.cli.terminal.abbreviations import find_key
from holdfast.cli.terminal.clock import now_ms
from holdfast.cli.terminal.durations import parse_duration_ms
from holdfast.cli.terminal.node_client import NodeSession, call_node, run_on_node
from holdfast.cli.terminal.options import Json, NodeAddress, OldestFirst, Yes, on_node
from holdfast.cli.terminal.reporting import confirm
from holdfast.cli.terminal.tables import format_time, print_json, print_outcome, print_record, print_table, repeat_note
from holdfast.client import NodeRefused
from holdfast.core.base.errors import Unavailable
from holdfast.core.base.values import Tier
from holdfast.core.key.model import Role, secret_hash

app = make_app(no_args_is_help=True, help="Create and revoke API keys for people and programs.")
SECRET_BYTES: Final = 32

KeyArgument = Annotated[str, typer.Argument(metavar="KEY", help="The key's id, the beginning of it, or its label.")]
Output = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the token into this new file instead of printing it.")
]


@app.command(example="holdfast key create --account alice --label laptop --expires 30d --output alice.token")
@on_node
def create(
    address: NodeAddress,
    role: Annotated[Role, typer.Option(help="The role of whoever uses it.")] = Role.REQUESTER,
    account: Annotated[
        str | None,
        typer.Option(help="The account that a requester spends from or a provider belongs to; for example alice."),
    ] = None,
    tier: Annotated[Tier, typer.Option(help="A requester's subscription.")] = Tier.FREE,
    scope: Annotated[
        list[str] | None, typer.Option(help="Only this method or group, for example cap.*; may be repeated.")
    ] = None,
    expires: Annotated[str | None, typer.Option(help="After 90m, 12h or 30d. [default: never]")] = None,
    label: Annotated[str, typer.Option(help="A note: for whom or what.")] = "",
    daily_cap: Annotated[
        int | None, typer.Option(min=1, help="How much its jobs may reserve in a day of UTC. [default: no limit]")
    ] = None,
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Create a key and print its token, once, alone on standard output: TOKEN=$(holdfast key create --account alice)

    The secret is generated here and only its hash is sent to the node. If the token is lost, rotate the key.
    """
    id_, secret = secrets.token_hex(8), _new_secret()
    expires_ms = None if expires is None else now_ms() + parse_duration_ms("--expires", expires)
    params: dict[str, object] = {
        "id": id_,
        "secret": _hash(secret),
        "role": role.value,
        "account": account,
        "tier": tier.value,
        "scopes": scope or [],
        "label": label,
        "expires_ms": expires_ms,
    }
    if daily_cap is not None:
        params["daily_cap"] = daily_cap

    async def create_key(node: NodeSession) -> None:
        await _call_with_token((id_, secret), output, node, "key.createKey", params)

    run_on_node(address, create_key)
    _print_token(id_, secret, output, as_json=as_json)
    until = "never expires" if expires_ms is None else f"expires {format_time(expires_ms)}"
    _print_note(f"key {id_}: {role}{f' of {account}' if account else ''}, {until}; the token is shown only now")


@app.command("list", example="holdfast key list")
@on_node
def list_(address: NodeAddress, oldest_first: OldestFirst = False, as_json: Json = False) -> None:
    """List all keys, newest first, without their secrets."""
    page = call_node(address, "key.listKeys")
    if as_json:
        print_json(page)
        return
    heads = ("ID", "ROLE", "ACCOUNT", "TIER", "SCOPES", "DAILY CAP", "STATE", "CREATED", "LABEL")
    rows = [
        (
            key["id"],
            key["role"],
            key["account"],
            key["tier"] if key["account"] else None,
            " ".join(key["scopes"]),
            key["daily_cap"] or None,
            _describe_state(key["revoked_ms"], key["expires_ms"], key["rotated_until_ms"]),
            format_time(key["made_ms"]),
            key["label"],
        )
        for key in (page["keys"] if oldest_first else reversed(page["keys"]))
    ]
    print_table(heads, rows)


@app.command(example="holdfast key rotate laptop --grace 1h --output alice.token")
@on_node
def rotate(
    address: NodeAddress,
    key: KeyArgument,
    grace: Annotated[str, typer.Option(help="How long the old token stays valid: 90m, 12h, 30d.")] = "24h",
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Give a key a new secret and print its new token, once; the old token stays valid for a while."""
    secret, grace_ms = _new_secret(), parse_duration_ms("--grace", grace)

    async def rotate_key(node: NodeSession) -> str:
        id_ = await find_key(node, key)
        params = {"id": id_, "secret": _hash(secret), "grace_ms": grace_ms}
        await _call_with_token((id_, secret), output, node, "key.rotateKey", params)
        return id_

    id_ = run_on_node(address, rotate_key)
    _print_token(id_, secret, output, as_json=as_json)
    _print_note(f"key {id_} has a new token; the old one is valid until {format_time(now_ms() + grace_ms)}")


@app.command(example="holdfast key revoke laptop --yes")
@on_node
def revoke(address: NodeAddress, key: KeyArgument, yes: Yes = False, as_json: Json = False) -> None:
    """Revoke a key for good: its tokens are refused from now on."""
    id_ = run_on_node(address, lambda node: find_key(node, key))
    confirm(f"Revoke key {id_}?", "SEC-001", yes=yes)
    answer = call_node(address, "key.revokeKey", id=id_)
    print_outcome({"id": id_, **answer}, f"key {id_} is revoked ({repeat_note(answer)})", as_json=as_json)


@app.command(example="holdfast key whoami --url https://node.example:8451 --token-file alice.token")
@on_node
def whoami(address: NodeAddress, as_json: Json = False) -> None:
    """Show the key in use and what it may do. Whoever may open the folder's socket is an operator."""
    principal = call_node(address, "key.whoami")
    print_json(principal) if as_json else print_record(principal)


# ------------------------------------------------------------------------------------------------ secrets


def _new_secret() -> str:
    """32 random bytes as base64url; this text is what is hashed."""
    return secrets.token_urlsafe(SECRET_BYTES)


def _print_token(id_: str, secret: str, output: Path | None, *, as_json: bool) -> None:
    """Once, unless it is in a file."""
    token = f"hf_{id_}_{secret}"
    if as_json:
        print_json({"id": id_, "token": token} if output is None else {"id": id_, "file": str(output)})
    elif output is None:
        print(token, flush=True)


def _hash(secret: str) -> str:
    return secret_hash(secret.encode()).hex()


async def _call_with_token(
    token: tuple[str, str], output: Path | None, node: NodeSession, method: str, params: dict[str, object]
) -> None:
    """Save the token before the node gets its hash: a crash leaves a useless token, never a key without one."""
    if output is None:
        await node.call(method, **params)
        return
    if output.is_dir():  # noqa: ASYNC240 - nothing else runs in this loop
        raise Unavailable("SEC-001", f"{output} is a folder", "pass a file in it")
    if not write_new(output, f"hf_{'_'.join(token)}\n".encode()):
        raise Unavailable("SEC-001", f"{output} already exists", "nothing is overwritten: pass another file")
    try:
        await node.call(method, **params)
    except NodeRefused:
        output.unlink(missing_ok=True)  # noqa: ASYNC240 - nothing else runs in this loop
        raise


def _describe_state(revoked_ms: int | None, expires_ms: int | None, rotated_until_ms: int | None) -> str:
    if revoked_ms is not None:
        return f"revoked {format_time(revoked_ms)}"
    if expires_ms is not None and expires_ms <= now_ms():
        return f"expired {format_time(expires_ms)}"
    if rotated_until_ms is not None and rotated_until_ms > now_ms():
        return f"valid, old token until {format_time(rotated_until_ms)}"
    return "valid" if expires_ms is None else f"valid until {format_time(expires_ms)}"


def _print_note(text: str) -> None:
    print(text, file=sys.stderr)
