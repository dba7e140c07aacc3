"""`holdfast doctor`: check a node's environment and report what is dangerous, each finding with a hint."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

import typer

from holdfast.cli import make_app
from holdfast.cli.doctor.endpoints import check_endpoints
from holdfast.cli.doctor.finding import HostFinding
from holdfast.cli.doctor.host_checks import check_folder, check_keys, check_socket
from holdfast.cli.doctor.owner import check_owner
from holdfast.cli.terminal.clock import now_ms
from holdfast.cli.terminal.options import ConfigFile, Data, Json
from holdfast.cli.terminal.reporting import format_finding, load_settings
from holdfast.cli.terminal.tables import print_outcome
from holdfast.client import SOCKET_NAME, NodeRefused, NodeUnreachable
from holdfast.client.node_socket import NodeSocket
from holdfast.config import Config, Store
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.core.policy import ChainPolicy

app = make_app()
CLOCK_BEHIND_MS: Final = 1_000
BLOCK_LATE_MS: Final = 30_000
"""A block this much later than it should be is not explained by a busy machine."""


@app.command(example="holdfast doctor")
def doctor(
    data: Data = None,
    config: ConfigFile = None,
    store: Annotated[str | None, typer.Option(metavar="sqlite|postgres", help="Which store. [default: sqlite]")] = None,
    as_json: Json = False,
) -> None:
    """Check folder, keys, disk, clock, store, network APIs and node; nothing is changed.

    Exit code 0: all is well. 1: something needs attention.
    """
    settings = load_settings(config, {"data": data, "store": store}, with_stores=True)
    findings = [
        *check_folder(settings.data),
        *check_socket(settings.data),
        *check_keys(settings.data),
        *asyncio.run(_check_store(settings)),
    ]
    is_up, node_findings = asyncio.run(_check_node(settings))
    findings += [*node_findings, *check_endpoints(settings, is_up)]
    bad = sum(not each.is_good for each in findings)
    summary = f"\n{'all is well' if not bad else f'{bad} of {len(findings)} need attention'}"
    lines = [format_finding(*each) for each in findings]
    print_outcome([each._asdict() for each in findings], *lines, summary, as_json=as_json)
    raise typer.Exit(1 if bad else 0)


# ------------------------------------------------------------------------------------------------ the store


async def _check_store(settings: Config) -> list[HostFinding]:
    from holdfast.app.stores import make_stores  # noqa: PLC0415 - only here a store is needed

    findings = [] if settings.store is Store.SQLITE else await _check_server(settings)
    if settings.store is Store.SQLITE and not (settings.data / "journal.db").exists():
        return [HostFinding(True, "journal", "there is none yet", "the first start creates it")]
    journal, tables = make_stores(settings)
    try:
        tip, faults = await journal.tip(), [*await journal.faults(), *await tables.faults()]
        findings += [
            HostFinding(True, "journal", f"ends at batch {tip.number}, event {tip.last}, term {tip.term}"),
            check_clock(tip.time_ms - now_ms(), "the last batch"),
            *(HostFinding(False, "store", fault, "holdfast db check shows more") for fault in faults),
        ]
    except (Unavailable, Corrupt) as fault:
        findings.append(HostFinding(False, "journal", str(fault)))
    finally:
        await tables.close()
        await journal.close()
    return findings


def check_clock(behind_ms: int, what: str) -> HostFinding:
    """The machine's clock against the time of what the node has recorded."""
    good = behind_ms <= CLOCK_BEHIND_MS
    message = f"not behind {what}" if good else f"{behind_ms // 1000} s behind {what}"
    return HostFinding(good, "clock", message, "" if good else _SET_CLOCK)


_SET_CLOCK: Final = "set the clock; until it has caught up, the node's time does not advance"


async def _check_server(settings: Config) -> list[HostFinding]:
    """Settings of PostgreSQL that could lose what was confirmed."""
    from holdfast.adapters.postgres.server import inspect_server  # noqa: PLC0415 - an optional dependency

    postgres = settings.postgres
    assert postgres.dsn is not None
    try:
        version, unsafe = await inspect_server(postgres.dsn.reveal(), postgres.schema)
    except Unavailable as fault:
        return [HostFinding(False, "server", str(fault))]
    accepted = "; accepted by postgres.allow_unsafe" if postgres.allow_unsafe else ": the node refuses it"
    return [
        HostFinding(True, "server", f"PostgreSQL {version} answers"),
        *(HostFinding(False, each.setting, f"{each.value}: {each.reason}", f"turn it on{accepted}") for each in unsafe),
    ]


# ------------------------------------------------------------------------------------------------ the node


async def _check_node(settings: Config) -> tuple[bool, list[HostFinding]]:
    """Whether it is up, and what it reports."""
    try:
        if not (settings.data / SOCKET_NAME).exists():
            raise NodeUnreachable("it does not listen")
        async with NodeSocket(settings.data, total_timeout_s=2.0, answer_timeout_s=2.0) as node:
            status, head = await node.status(), await node.call("chain.getHead")
    except (NodeUnreachable, NodeRefused) as fault:
        return False, [await check_owner(settings, str(fault))]
    finding = HostFinding(True, "node", f"{status['role']}, {status['phase']}, event {status['event']}")
    return True, [finding, check_chain(head, settings.policy.chain, now_ms())]


def check_chain(head: dict[str, Any], policy: ChainPolicy, at_ms: int) -> HostFinding:
    """CHN-002: whether blocks come in time, and whether the clock is behind the newest one."""
    block, open_ = head["block"], head["open_transactions"]
    age_ms = at_ms - block["time_ms"]
    if block["height"] == 0:
        return HostFinding(True, "chain", "no block yet", "the first one is sealed within a minute")
    if age_ms < -CLOCK_BEHIND_MS:
        message = f"block {block['height']} is {-age_ms // 1000} s ahead of the clock"
        return HostFinding(False, "chain", message, _SET_CLOCK)
    late_ms = age_ms - (policy.block_ms if open_ else policy.idle_block_ms)
    good = late_ms <= BLOCK_LATE_MS
    message = f"block {block['height']} is {max(0, age_ms) // 1000} s old, {head['finalized']} final"
    return HostFinding(good, "chain", message, "" if good else "the node seals no blocks: its log says why")
