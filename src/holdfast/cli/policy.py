"""`holdfast policy`: the policy that counts on a running node, adopting another one, and what counted before."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from holdfast.cli import make_app
from holdfast.cli.terminal.node_client import NodeSession, call_node, run_on_node
from holdfast.cli.terminal.options import Json, Limit, NodeAddress, on_node
from holdfast.cli.terminal.tables import format_time, print_json, print_table
from holdfast.config import Config, load
from holdfast.core.base.values import Network
from holdfast.core.policy import Policy, policy_differences, settings_of

app = make_app(no_args_is_help=True, help="Show the policy that counts, adopt another one, list earlier ones.")


@app.command(example="holdfast policy show")
@on_node
def show(address: NodeAddress, as_json: Json = False) -> None:
    """Show every setting of the policy that counts. A star marks what differs from the network's default."""
    adopted = call_node(address, "policy.getPolicy")
    if as_json:
        print_json(adopted)
        return
    policy = msgspec.convert(adopted["policy"], Policy)
    changed = policy_differences(Policy.for_network(policy.network, policy.chain_id), policy)
    rows = [("*" if path in changed else "", path, _word(value)) for path, value in settings_of(policy).items()]
    print_table(("", "SETTING", "VALUE"), rows)
    print(f"adopted by event {adopted['event']}")


@app.command(example="holdfast policy apply holdfast.toml --dry-run")
@on_node
def apply(
    address: NodeAddress,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A holdfast.toml; its [policy] tables are adopted.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    as_json: Json = False,
) -> None:
    """Adopt the policy of a settings file, at once and without a restart.

    What the file does not name has the network's default. Network and chain_id are those of the chain for ever. Nothing
    else of the file is used, and no environment variable is.
    """
    wanted = _read_policy(file)

    async def adopt(node: NodeSession) -> tuple[dict[str, tuple[Any, Any]], Any]:
        policy = msgspec.convert((await node.call("policy.getPolicy"))["policy"], Policy)
        settings = msgspec.to_builtins(wanted)
        answer = None if dry_run else await node.call("policy.apply", policy=settings)
        return policy_differences(policy, wanted), answer

    changes, answer = run_on_node(address, adopt)
    if as_json:
        event = None if answer is None else answer["event"]
        print_json({"changes": changes, "is_applied": answer is not None, "event": event})
        return
    _print_changes(changes)
    if not changes:
        print("this policy counts already")
    elif answer is None:
        print("nothing was changed")
    else:
        print(f"adopted by event {answer['event']}")


@app.command(example="holdfast policy history --limit 5")
@on_node
def history(
    address: NodeAddress,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """List adopted policies, the newest first: when, by whom, and which settings changed."""
    page = call_node(address, "policy.listHistory", limit=limit)
    if as_json:
        print_json(page)
        return
    for adoption in page["adoptions"]:
        print(f"event {adoption['event']}  {format_time(adoption['at_ms'])}  by {adoption['by']}")
        _print_changes(adoption["changes"])


def _read_policy(file: Path) -> Policy:
    loaded = load(file, {}, {})
    if isinstance(loaded, Config):
        return loaded.policy
    for fault in loaded:
        print(f"holdfast: {fault}", file=sys.stderr)
    raise typer.Exit(2)


def _print_changes(changes: dict[str, tuple[Any, Any]]) -> None:
    for path, (before, after) in changes.items():
        print(f"  {path}: {_word(before)} → {_word(after)}")


def _word(value: object) -> str:
    """A value as the settings file has it."""
    if isinstance(value, Network | str):
        return str(value)
    return "none" if value is None else str(value).lower()
