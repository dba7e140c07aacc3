"""`holdfast audit`: who did what others may not (SEC-001), and whether work was given out by the rules (MAT-006)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
import typer

from holdfast.cli import verb
from holdfast.cli.asking import PATIENCE_S, Data
from holdfast.cli.auditing import match
from holdfast.cli.columns import when
from holdfast.cli.speak import configured, told
from holdfast.client import Client

app = verb(no_args_is_help=True)
app.command("match")(match)
HIDDEN = frozenset({"secret"})
"""Not even its hash is of use to who reads."""


@app.callback()
def _audit() -> None:
    """Look back at what was done, by whom, and whether it was right."""


@app.command()
def acts(
    after: Annotated[int, typer.Option(min=0, help="Only acts after this event.")] = 0,
    actor: Annotated[str | None, typer.Option(help="Only this key's, by its id, or `local`.")] = None,
    data: Data = None,
    as_json: Annotated[bool, typer.Option("--json", help="One act a line, as JSON.")] = False,
) -> None:
    """Privileged acts up to now: when, by whom, which method, and the events that it caused.

    Every act stands in the journal before its events, in the same batch: there is no act without its name.
    """

    async def look() -> int:
        found = 0
        async with Client(configured(None, {"data": data}).data, PATIENCE_S) as node:
            async for act in _acts(node, after):
                if actor is None or act["actor"] == actor:
                    found += 1
                    print(msgspec.json.encode(act).decode() if as_json else _shown(act), flush=True)
        return found

    with told():
        if asyncio.run(look()) == 0 and not as_json:
            print("no acts")


async def _acts(node: Client, after: int) -> AsyncIterator[dict[str, Any]]:
    last = (await node.status())["event"]
    if after >= last:
        return
    act: dict[str, Any] | None = None
    async for event in node.follow(after):
        if event["type"] == "ActDone":
            act = {"number": event["number"], "time_ms": event["time_ms"], **event["event"], "events": []}
            left = event["event"]["events"]
        elif act is not None:
            act["events"].append(_without_secrets(event))
            left -= 1
        if act is not None and left == 0:
            yield act
            act = None
        if event["number"] >= last and act is None:
            return


def _without_secrets(event: dict[str, Any]) -> dict[str, Any]:
    fields = {name: value for name, value in event["event"].items() if name not in HIDDEN}
    return {"number": event["number"], "type": event["type"], "event": fields}


def _shown(act: dict[str, Any]) -> str:
    lines = [f"{act['number']:<8}{when(act['time_ms'])}  {act['actor']:<16}  {act['method']}"]
    for event in act["events"]:
        fields = "  ".join(f"{name}={value}" for name, value in event["event"].items() if value not in ("", None, []))
        lines.append(f"        {event['number']}  {event['type']}  {fields}")
    return "\n".join(lines)
