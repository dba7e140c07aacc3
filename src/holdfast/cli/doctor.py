"""`holdfast doctor`: looks at what a node stands on and names what is dangerous, each finding with a hint."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer

from holdfast.cli import Command, verb
from holdfast.cli.speak import configured, finding
from holdfast.client import SOCKET, Client, NodeRefused, NodeUnreachable
from holdfast.config import Config, Store
from holdfast.core.refusal import Corrupt, Unavailable
from holdfast.doors.local import SOCKET_PATH_MAX

app = verb()
FREE_BYTES_MIN: Final = 1 << 30
CLOCK_BEHIND_MS: Final = 1_000


class Finding(NamedTuple):
    """One thing looked at."""

    is_good: bool
    what: str
    says: str
    hint: str = ""


@app.command(cls=Command)
def doctor(
    data: Annotated[Path | None, typer.Option(help="The node's folder. [default: ./holdfast-data]")] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file. [default: ./holdfast.toml if it exists]")] = None,
    store: Annotated[str | None, typer.Option(help="sqlite or postgres. [default: sqlite]")] = None,
) -> None:
    """Check folder, disk, clock, store and node without changing anything. Exit code 1 if something needs a hand."""
    settings = configured(config, {"data": data, "store": store}, with_stores=True)
    findings = [*_folder(settings.data), *_socket(settings.data), *asyncio.run(_store(settings))]
    findings += asyncio.run(_node(settings.data))
    for each in findings:
        print(finding(*each))
    bad = sum(not each.is_good for each in findings)
    print(f"\n{'all well' if not bad else f'{bad} of {len(findings)} need a hand'}")
    raise typer.Exit(1 if bad else 0)


def _folder(data: Path) -> Iterator[Finding]:
    if not data.exists():
        yield Finding(True, "folder", f"{data} does not exist yet", "the first start makes it")
    else:
        status = data.stat()
        mode = stat.S_IMODE(status.st_mode)
        private = mode & 0o077 == 0 and status.st_uid == os.getuid()
        yield Finding(private, "folder", f"{data} has mode {mode:04o}", "" if private else f"chmod 700 {data}")
        writable = os.access(data, os.W_OK | os.X_OK)
        yield Finding(writable, "write", "can be written" if writable else "cannot be written by this user")
    there = next(folder for folder in (data.absolute(), *data.absolute().parents) if folder.exists())
    free = shutil.disk_usage(there).free
    hint = "" if free >= FREE_BYTES_MIN else "a full disk stops the node until there is room; nothing confirmed is lost"
    yield Finding(free >= FREE_BYTES_MIN, "disk", f"{free // 2**20} MiB free", hint)


def _socket(data: Path) -> Iterator[Finding]:
    size = len(os.fsencode(data.absolute() / SOCKET))
    good = size <= SOCKET_PATH_MAX
    hint = "" if good else "use a data folder with a shorter path"
    yield Finding(good, "socket", f"its path has {size} of at most {SOCKET_PATH_MAX} bytes", hint)


async def _store(settings: Config) -> list[Finding]:
    from holdfast.app import stores  # noqa: PLC0415 - only now is a store needed

    findings = [] if settings.store is Store.SQLITE else await _server(settings)
    if settings.store is Store.SQLITE and not (settings.data / "journal.db").exists():
        return [Finding(True, "journal", "there is none yet", "the first start makes it")]
    journal, tables = stores(settings)
    try:
        tip, faults = await journal.tip(), [*await journal.faults(), *await tables.faults()]
        behind_ms = tip.time_ms - time.time_ns() // 1_000_000
        findings += [
            Finding(True, "journal", f"ends at batch {tip.number}, event {tip.last}, epoch {tip.epoch}"),
            _clock(behind_ms),
            *(Finding(False, "store", fault, "holdfast db check says more") for fault in faults),
        ]
    except (Unavailable, Corrupt) as fault:
        findings.append(Finding(False, "journal", str(fault)))
    finally:
        await tables.close()
        await journal.close()
    return findings


def _clock(behind_ms: int) -> Finding:
    good = behind_ms <= CLOCK_BEHIND_MS
    says = "not behind the journal" if good else f"{behind_ms // 1000} s behind the last batch"
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


async def _node(data: Path) -> list[Finding]:
    if not (data / SOCKET).exists():
        return [Finding(True, "node", "not running")]
    try:
        async with Client(data, patience_s=2.0, answer_within_s=2.0) as node:
            status = await node.status()
    except (NodeUnreachable, NodeRefused) as fault:
        return [Finding(False, "node", str(fault), "it was killed, or it hangs: start or restart it")]
    return [Finding(True, "node", f"{status['role']}, {status['phase']}, event {status['event']}")]
