"""`holdfast demo`: less than a minute in which an agent and a node are killed, and a proof that no job was lost."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Final

import typer
from msgspec.structs import replace

from holdfast.cli import Command, verb
from holdfast.cli.demonstration.acts import perform
from holdfast.cli.demonstration.board import Screen
from holdfast.cli.demonstration.children import Children, Trouble
from holdfast.cli.demonstration.pace import WHOLE_S, Pace
from holdfast.cli.demonstration.plain import PlainScreen
from holdfast.cli.demonstration.stage import Stage
from holdfast.cli.speak import BAD_INPUT
from holdfast.client import SOCKET, NodeRefused, NodeUnreachable
from holdfast.config import Config, Store, load, why_not_stored
from holdfast.core.refusal import Corrupt, Unavailable

app = verb()
INTERRUPTED: Final = 130
SOCKET_PATH_MAX: Final = 107
"""What a Unix socket's address can hold."""


@app.command(cls=Command)
def demo(
    data: Annotated[Path | None, typer.Option(help="An empty or new folder. [default: a temporary one]")] = None,
    seconds: Annotated[float, typer.Option(min=1, max=600, help="How long, roughly.")] = WHOLE_S,
    store: Annotated[str, typer.Option(help="sqlite, or postgres with HOLDFAST_POSTGRES__DSN set.")] = "sqlite",
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave node and agents running at the end, and the data.")
    ] = False,
) -> None:
    """Forty jobs on this machine, with sample money: a node, three agents, kill -9 of both, and the proof.

    Exit code 0 means: every receipt was honoured with one result, nothing was done twice, all bytes and all money are
    there, and the journal gives the same state.
    """
    made = data is None or not data.exists()
    pace = Pace.of(seconds)
    told = _told(store, pace)
    folder = _folder(data)
    config = replace(told, data=folder / "node")
    code = _run(folder, config, pace, keep)
    if code == 0 and not keep:
        _remove(folder, config, whole=made)
    raise typer.Exit(code)


def _run(folder: Path, config: Config, pace: Pace, keep: bool) -> int:
    children = Children(folder)
    stage = Stage(folder, config, pace, children, _screen())
    try:
        with children, asyncio.Runner() as runner:
            runner.run(_perform(stage, keep))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return _close(stage, INTERRUPTED, "Stopped. The demo's own processes are ended.")
    except (Trouble, NodeRefused, NodeUnreachable, Unavailable, Corrupt) as trouble:
        return _close(stage, 1, str(trouble))
    if not stage.board.is_good:
        return _close(stage, 1, "Something is not as promised.")
    return _close(stage, 0)


def _close(stage: Stage, code: int, says: str = "") -> int:
    if code:
        stage.board.closing += [*says.splitlines(), f"The data lies in {stage.folder}{_and_schema(stage.config)}"]
    stage.close()
    return code


async def _perform(stage: Stage, keep: bool) -> None:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    await perform(stage)
    if keep:
        await stage.start_node()
        for name in stage.board.seats:
            stage.start_agent(name)
        stage.board.closing += _kept(stage, [stage.children.let_go(name) for name in ("node", *stage.board.seats)])
    else:
        stage.board.closing += _finished(stage)


# ------------------------------------------------------------------------------------------------ where


def _told(store: str, pace: Pace) -> Config:
    """Of the user's settings only the server counts; on it the demo has a schema of its own."""
    environ = {name: value for name, value in os.environ.items() if name.startswith("HOLDFAST_POSTGRES__DSN")}
    place = {"store": store, "postgres.schema": f"holdfast_demo_{os.getpid()}_{int(time.time())}"}
    flags = {**pace.settings(), **place}
    found = load(Path(os.devnull), environ, flags)
    faults = found if isinstance(found, list) else [no] if (no := why_not_stored(found)) else []
    for fault in faults:
        print(f"holdfast: {fault}", file=sys.stderr)
    if isinstance(found, list) or faults:
        raise typer.Exit(BAD_INPUT)
    return found


def _and_schema(config: Config) -> str:
    return f" and in schema {config.postgres.schema}" if config.store is Store.POSTGRES else ""


def _folder(data: Path | None) -> Path:
    folder = _temporary() if data is None else data.resolve()
    if (says := _why_not_folder(folder)) is not None:
        print(f"holdfast: {folder}: {says}", file=sys.stderr)
        raise typer.Exit(BAD_INPUT)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _temporary() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    if not _is_too_long(folder):
        return folder
    folder.rmdir()
    return Path(tempfile.mkdtemp(prefix="holdfast-demo-", dir="/tmp"))


def _why_not_folder(folder: Path) -> str | None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        return "not an empty folder; name a new one"
    return "too long for a socket; name a shorter path" if _is_too_long(folder) else None


def _is_too_long(folder: Path) -> bool:
    return len(os.fsencode(folder / "node" / SOCKET)) > SOCKET_PATH_MAX


def _remove(folder: Path, config: Config, *, whole: bool) -> None:
    """What the demo made, and no more: a folder that was there before stays, empty."""
    if config.store is Store.POSTGRES and config.postgres.dsn is not None:
        from holdfast.adapters.postgres.connect import drop_schema  # noqa: PLC0415 - an extra

        asyncio.run(drop_schema(config.postgres.dsn.reveal(), config.postgres.schema))
    for entry in folder.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    if whole:
        folder.rmdir()


# ------------------------------------------------------------------------------------------------ what is said


def _screen() -> Screen:
    from rich.console import Console  # noqa: PLC0415 - only this verb draws

    from holdfast.cli.demonstration import live  # noqa: PLC0415

    console = Console(highlight=False)
    return live.LiveScreen(console) if live.fits(console) else PlainScreen()


def _program() -> str:
    return "holdfast" if shutil.which("holdfast") else sys.argv[0]


def _look(data: str, task_id: str) -> list[str]:
    return [f"  {_program()} job list --data {data}", f"  {_program()} job show {task_id} --data {data}"]


def _kept(stage: Stage, pids: list[int]) -> list[str]:
    task_id = stage.board.notes[-1].task_id
    return [
        "Look for yourself:",
        *_look(str(stage.data), task_id),
        f"  {_program()} verify {stage.folder / 'proof.json'}",
        f"Node and agents run on. Stop them: kill {' '.join(map(str, pids))}; then: rm -r {stage.folder}",
        *([f"The journal and the tables are{_and_schema(stage.config)[4:]}."] if _and_schema(stage.config) else []),
    ]


def _finished(stage: Stage) -> list[str]:
    if not stage.board.is_good:
        return []
    return [
        "Look for yourself, with a node and agents that stay:",
        f"  {_program()} demo --store {stage.config.store} --keep --data look",
        *_look("look/node", "TASK_ID"),
        "This run's folder is removed.",
    ]
