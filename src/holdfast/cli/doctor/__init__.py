"""`holdfast doctor`: looks at what a node stands on and names what is dangerous, each finding with a hint."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from holdfast.cli import Command, verb
from holdfast.cli.doctor.doors import doors
from holdfast.cli.doctor.finding import Finding
from holdfast.cli.doctor.ground import folder, keys, socket
from holdfast.cli.speak import configured, finding
from holdfast.client import SOCKET, Client, NodeRefused, NodeUnreachable
from holdfast.config import Config, Store
from holdfast.core.policy import ChainPolicy
from holdfast.core.refusal import Corrupt, Unavailable

app = verb()
CLOCK_BEHIND_MS: Final = 1_000
BLOCK_LATE_MS: Final = 30_000
"""A block this much later than it should be is no accident of the machine."""


@app.command(cls=Command)
def doctor(
    data: Annotated[Path | None, typer.Option(help="The node's folder. [default: ./holdfast-data]")] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file. [default: ./holdfast.toml if it exists]")] = None,
    store: Annotated[str | None, typer.Option(help="sqlite or postgres. [default: sqlite]")] = None,
) -> None:
    """Check folder, keys, disk, clock, store, doors and node; change nothing. Exit code 1: something needs a hand."""
    settings = configured(config, {"data": data, "store": store}, with_stores=True)
    findings = [*folder(settings.data), *socket(settings.data), *keys(settings.data), *asyncio.run(_store(settings))]
    is_up, about_node = asyncio.run(_node(settings))
    findings += [*about_node, *doors(settings, is_up)]
    for each in findings:
        print(finding(*each))
    bad = sum(not each.is_good for each in findings)
    print(f"\n{'all well' if not bad else f'{bad} of {len(findings)} need a hand'}")
    raise typer.Exit(1 if bad else 0)


# ------------------------------------------------------------------------------------------------ the store


async def _store(settings: Config) -> list[Finding]:
    from holdfast.app import stores  # noqa: PLC0415 - only now is a store needed

    findings = [] if settings.store is Store.SQLITE else await _server(settings)
    if settings.store is Store.SQLITE and not (settings.data / "journal.db").exists():
        return [Finding(True, "journal", "there is none yet", "the first start makes it")]
    journal, tables = stores(settings)
    try:
        tip, faults = await journal.tip(), [*await journal.faults(), *await tables.faults()]
        findings += [
            Finding(True, "journal", f"ends at batch {tip.number}, event {tip.last}, epoch {tip.epoch}"),
            clock(tip.time_ms - _now_ms(), "the last batch"),
            *(Finding(False, "store", fault, "holdfast db check says more") for fault in faults),
        ]
    except (Unavailable, Corrupt) as fault:
        findings.append(Finding(False, "journal", str(fault)))
    finally:
        await tables.close()
        await journal.close()
    return findings


def clock(behind_ms: int, what: str) -> Finding:
    """The machine's clock against what the node has written down."""
    good = behind_ms <= CLOCK_BEHIND_MS
    says = f"not behind {what}" if good else f"{behind_ms // 1000} s behind {what}"
    return Finding(good, "clock", says, "" if good else "set the clock; until then the node's time stands still")


async def _server(settings: Config) -> list[Finding]:
    """PostgreSQL's settings that could lose what was confirmed."""
    from holdfast.adapters.postgres.server import examined  # noqa: PLC0415 - an extra: not everybody has it

    told = settings.postgres
    assert told.dsn is not None
    try:
        version, found = await examined(told.dsn.reveal(), told.schema)
    except Unavailable as fault:
        return [Finding(False, "server", str(fault))]
    said = [Finding(True, "server", f"PostgreSQL {version} answers")]
    hint = "switch it on" + ("; accepted by postgres.allow_unsafe" if told.allow_unsafe else ": the node refuses it")
    return said + [Finding(False, each.setting, f"{each.value}: {each.why}", hint) for each in found]


# ------------------------------------------------------------------------------------------------ the node


async def _node(settings: Config) -> tuple[bool, list[Finding]]:
    """Whether it is up, and how it is."""
    if not (settings.data / SOCKET).exists():
        return False, [Finding(True, "node", "not running")]
    try:
        async with Client(settings.data, patience_s=2.0, answer_within_s=2.0) as node:
            status, head = await node.status(), await node.call("chain.head")
    except (NodeUnreachable, NodeRefused) as fault:
        return False, [Finding(False, "node", str(fault), "it was killed, or it hangs: start or restart it")]
    found = Finding(True, "node", f"{status['role']}, {status['phase']}, event {status['event']}")
    return True, [found, chain(head, settings.policy.chain, _now_ms())]


def chain(head: dict[str, Any], policy: ChainPolicy, now_ms: int) -> Finding:
    """CHN-002: whether blocks come in time; the clock is held against the newest one."""
    block, open_ = head["block"], head["open_transactions"]
    age_ms = now_ms - block["time_ms"]
    if block["height"] == 0:
        return Finding(True, "chain", "no block yet", "the first one is sealed within a minute")
    if age_ms < -CLOCK_BEHIND_MS:
        hint = "set the clock; until then the node's time stands still"
        return Finding(False, "chain", f"block {block['height']} is {-age_ms // 1000} s ahead of the clock", hint)
    late_ms = age_ms - (policy.block_ms if open_ else policy.idle_block_ms)
    good = late_ms <= BLOCK_LATE_MS
    says = f"block {block['height']} is {max(0, age_ms) // 1000} s old, {head['finalized']} final"
    return Finding(good, "chain", says, "" if good else "the node seals no blocks: its log says why")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
