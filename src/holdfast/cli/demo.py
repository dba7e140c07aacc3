"""`holdfast demo`: kill an agent and a node within a minute, and prove that no job was lost."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace

from holdfast.api.rpc.unix_socket import SOCKET_PATH_MAX
from holdfast.cli import make_app
from holdfast.cli.exit_codes import BAD_INPUT, INTERRUPTED
from holdfast.client import SOCKET_NAME, NodeRefused, NodeUnreachable
from holdfast.config import Config, Store, load, why_not_own_gateway, why_not_store
from holdfast.core.base.errors import Corrupt, Unavailable
from holdfast.demo.faults import ARCHIVE_FAULTS, DEFAULT_FAULTS, FaultKind
from holdfast.demo.pace import DEFAULT_S, Pace
from holdfast.demo.processes import DemoFailed, DemoProcesses
from holdfast.demo.run import DemoRun
from holdfast.demo.scenario import run_scenario
from holdfast.demo.screen.board import Screen
from holdfast.demo.screen.plain import PlainScreen

app = make_app()


@app.command(example="holdfast demo\nholdfast demo --keep --data look")
def demo(
    data: Annotated[Path | None, typer.Option(help="An empty or new folder. [default: a temporary one]")] = None,
    seconds: Annotated[float, typer.Option(min=1, max=600, help="Its rough length.")] = DEFAULT_S,
    store: Annotated[
        str, typer.Option(metavar="sqlite|postgres", help="postgres needs HOLDFAST_POSTGRES__DSN.")
    ] = "sqlite",
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave its processes running at the end, and keep the data.")
    ] = False,
    broken: Annotated[
        list[FaultKind] | None,
        typer.Option("--break", help="What to break; may be repeated. [default: agent, node, archive-refuses]"),
    ] = None,
) -> None:
    """Run forty jobs on this machine with sample money: a node, three agents, an archive, their faults, and the proof.

    By default an agent and the node are killed and the archive refuses; --break archive-lies shows what happens when it
    returns other bytes than it was given.

    Exit code 0 means: every receipt was honoured with one result, no job was done twice, all bytes and all money are
    accounted for, and the journal gives the same state.
    """
    is_new_folder = data is None or not data.exists()
    pace = Pace.from_seconds(seconds)
    settings = _load_config(store, pace)
    folder = _make_folder(data)
    config = replace(settings, data=folder / "node")
    code = _run_demo(folder, config, pace, keep, _chosen_faults(broken))
    if code == 0 and not keep:
        _remove(folder, config, with_folder=is_new_folder)
    raise typer.Exit(code)


def _run_demo(folder: Path, config: Config, pace: Pace, keep: bool, faults: list[FaultKind]) -> int:
    processes = DemoProcesses(folder)
    run = DemoRun(folder, config, pace, processes, _choose_screen())
    try:
        with processes, asyncio.Runner() as runner:
            runner.run(_run_acts(run, keep, faults))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return _finish(run, INTERRUPTED, "Stopped. The demo's own processes are ended.")
    except (DemoFailed, NodeRefused, NodeUnreachable, Unavailable, Corrupt) as error:
        return _finish(run, 1, str(error))
    if not run.board.is_good:
        return _finish(run, 1, "A check failed.")
    return _finish(run, 0)


def _finish(run: DemoRun, code: int, message: str = "") -> int:
    if code:
        run.board.closing_lines += [*message.splitlines(), f"The data is in {run.folder}{_and_schema(run.config)}"]
    run.close()
    return code


async def _run_acts(run: DemoRun, keep: bool, faults: list[FaultKind]) -> None:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    await run_scenario(run, faults)
    if keep:
        await run.start_node()
        for name in run.board.agents:
            run.start_agent(name)
        names = ("node", *run.board.agents, *run.processes.others())
        run.board.closing_lines += _kept_lines(run, [run.processes.detach(name) for name in names])
    else:
        run.board.closing_lines += _finished_lines(run)


# ------------------------------------------------------------------------------------------------ settings and folder


def _chosen_faults(broken: list[FaultKind] | None) -> list[FaultKind]:
    """Without the archive's libraries there is no archive to break, and that is said."""
    faults = list(dict.fromkeys(broken or DEFAULT_FAULTS))
    if set(faults) >= ARCHIVE_FAULTS:
        print("holdfast: --break: the archive refuses or lies, not both", file=sys.stderr)
        raise typer.Exit(BAD_INPUT)
    missing = why_not_own_gateway(Config().gateway)
    if missing is not None and ARCHIVE_FAULTS.intersection(faults):
        print(f"holdfast: the demo runs without its archive: {missing.message}; {missing.hint}", file=sys.stderr)
        return [each for each in faults if each not in ARCHIVE_FAULTS]
    return faults


def _load_config(store: str, pace: Pace) -> Config:
    """Of the user's settings only the PostgreSQL server is used; on it the demo has its own schema."""
    environ = {name: value for name, value in os.environ.items() if name.startswith("HOLDFAST_POSTGRES__DSN")}
    database = {"store": store, "postgres.schema": f"holdfast_demo_{os.getpid()}_{int(time.time())}"}
    loaded = load(Path(os.devnull), environ, {**pace.settings(), **database})
    faults = loaded if isinstance(loaded, list) else [refusal] if (refusal := why_not_store(loaded)) else []
    for fault in faults:
        print(f"holdfast: {fault}", file=sys.stderr)
    if isinstance(loaded, list) or faults:
        raise typer.Exit(BAD_INPUT)
    return loaded


def _and_schema(config: Config) -> str:
    return f" and in schema {config.postgres.schema}" if config.store is Store.POSTGRES else ""


def _make_folder(data: Path | None) -> Path:
    folder = _make_temporary_folder() if data is None else data.resolve()
    if (reason := _why_not_folder(folder)) is not None:
        print(f"holdfast: {folder}: {reason}", file=sys.stderr)
        raise typer.Exit(BAD_INPUT)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _make_temporary_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    if not _is_too_long(folder):
        return folder
    folder.rmdir()
    return Path(tempfile.mkdtemp(prefix="holdfast-demo-", dir="/tmp"))


def _why_not_folder(folder: Path) -> str | None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        return "not an empty folder; choose a new one"
    return "too long for a socket; choose a shorter path" if _is_too_long(folder) else None


def _is_too_long(folder: Path) -> bool:
    return len(os.fsencode(folder / "node" / SOCKET_NAME)) > SOCKET_PATH_MAX


def _remove(folder: Path, config: Config, *, with_folder: bool) -> None:
    """Remove what the demo created, and no more: a folder that existed before stays, empty."""
    if config.store is Store.POSTGRES and config.postgres.dsn is not None:
        from holdfast.adapters.postgres.connect import drop_schema  # noqa: PLC0415 - an optional dependency

        asyncio.run(drop_schema(config.postgres.dsn.reveal(), config.postgres.schema))
    for entry in folder.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    if with_folder:
        folder.rmdir()


# ------------------------------------------------------------------------------------------------ screen


def _choose_screen() -> Screen:
    from rich.console import Console  # noqa: PLC0415 - heavy: only a terminal needs it

    from holdfast.demo.screen import live  # noqa: PLC0415

    console = Console(highlight=False)
    return live.LiveScreen(console) if live.is_large_enough(console) else PlainScreen()


def _program() -> str:
    return "holdfast" if shutil.which("holdfast") else sys.argv[0]


def _inspect_commands(data: str, task_id: str) -> list[str]:
    """The page only where it was built: whoever runs the demo from a checkout need not have it."""
    from holdfast.api.dashboard.page import STATIC  # noqa: PLC0415 - at the end, what it takes to load is not seen

    page = [f"  {_program()} dashboard --data {data}"] if (STATIC / "index.html").is_file() else []
    jobs = [f"  {_program()} job list --data {data}", f"  {_program()} job show {task_id} --data {data}"]
    return [*page, *jobs]


def _kept_lines(run: DemoRun, pids: list[int]) -> list[str]:
    task_id = run.board.records[-1].task_id
    return [
        "See for yourself:",
        *_inspect_commands(str(run.data), task_id),
        f"  {_program()} verify {run.folder / 'proof.json'}",
        f"Its processes run on. Stop them: kill {' '.join(map(str, pids))}; then: rm -r {run.folder}",
        *([f"The journal and the tables are{_and_schema(run.config)[4:]}."] if _and_schema(run.config) else []),
    ]


def _finished_lines(run: DemoRun) -> list[str]:
    if not run.board.is_good:
        return []
    return [
        "See for yourself, with processes that keep running:",
        f"  {_program()} demo --store {run.config.store} --keep --data look",
        *_inspect_commands("look/node", "TASK_ID"),
        "The folder of this run is removed.",
    ]
