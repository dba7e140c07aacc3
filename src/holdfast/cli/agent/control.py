"""`holdfast agent status | pause | resume | drain`: what the operator of a running agent asks it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.agent.control import DRAIN, PAUSE, RESUME, STATUS, ask_agent
from holdfast.cli.terminal.options import Json
from holdfast.cli.terminal.reporting import report_errors
from holdfast.cli.terminal.tables import print_json, print_record, print_table

AgentFolder = Annotated[Path, typer.Option("--data", help="The agent's folder.")]


def status(data: AgentFolder, as_json: Json = False) -> None:
    """Show how the agent in this folder is: connected, paused, and what each executor runs."""
    _ask(data, STATUS, as_json=as_json)


def pause(data: AgentFolder, as_json: Json = False) -> None:
    """Take no more leases; what runs goes on. `resume` takes leases again."""
    _ask(data, PAUSE, as_json=as_json)


def resume(data: AgentFolder, as_json: Json = False) -> None:
    """Take leases again after a pause."""
    _ask(data, RESUME, as_json=as_json)


def drain(data: AgentFolder, as_json: Json = False) -> None:
    """Take no more leases, and end when what runs is done, however long that takes. SIGTERM waits --drain-s."""
    _ask(data, DRAIN, as_json=as_json)


VERBS = {STATUS: status, PAUSE: pause, RESUME: resume, DRAIN: drain}


def _ask(data: Path, word: str, *, as_json: bool) -> None:
    with report_errors():
        answer = ask_agent(data, word)
    print_json(answer) if as_json else _print(answer)


def _print(answer: dict[str, Any]) -> None:
    executors = answer.pop("executors")
    print_record(answer | {"running": f"{answer['running']} of {answer.pop('slots')}"})
    rows = [
        (each["kind"], each["name"], f"{each['running']} of {each['slots']}", "" if each["is_healthy"] else "no")
        for each in executors
    ]
    print_table(("KIND", "NAME", "RUNNING", "HEALTHY"), [(*row[:3], row[3] or "yes") for row in rows])
