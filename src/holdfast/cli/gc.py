"""`holdfast gc`: let results' bytes and records go, or only see what would go and what would stay, and why."""

from __future__ import annotations

import sys
from typing import Annotated, Any, Final

import typer

from holdfast.cli import verb
from holdfast.cli.asking import Asked, Ca, Data, Json, Place, TokenFile, Url, ask, run
from holdfast.cli.columns import print_json, print_record, print_table

app = verb(no_args_is_help=True, help="Let results' bytes and records go, and strays, in bounded passes.")
STRAY: Final = "stray"
PASSES: Final = ("hot", "warm", "index", STRAY)
SUMMED: Final = ("looked", "dropped", "freed_bytes", "lost", "deleted", "ms")


@app.command("run")
def run_(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; say what would be done.")] = False,
    pass_: Annotated[
        str | None,
        typer.Option("--pass", metavar="hot|warm|index|stray", help="Only this one; else all, in their order."),
    ] = None,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """Run the passes on a running node until nothing more can go, and report what was freed and kept, and why.

    \b
    hot    bytes leave the store, where the disk or the archive was seen to hold them
    warm   bytes leave the disk, where the archive was seen to hold them
    index  records become tombstones; tombstones go when the audit window ends
    stray  files leave the disk that no result and no completion needs
    """
    wanted = [pass_] if pass_ is not None else list(PASSES)
    if not set(wanted) <= set(PASSES):
        print("holdfast gc run: RET-003: --pass is one of hot, warm, index, stray", file=sys.stderr)
        raise typer.Exit(2)

    async def collect(node: Asked) -> list[dict[str, Any]]:
        return [await _whole(node, each, dry_run) for each in wanted]

    reports = run(Place(data, url, token_file, ca), collect)
    if as_json:
        print_json(reports)
        return
    _print(reports, dry_run)


@app.command()
def status(
    data: Data = None, url: Url = None, token_file: TokenFile = None, ca: Ca = None, as_json: Json = False
) -> None:
    """How far the passes have come, and how many bytes rest in the store and on the disk."""
    found = ask(Place(data, url, token_file, ca), "gc.status")
    if as_json:
        print_json(found)
        return
    print_record({name: found[name] for name in ("watermark", "bytes_hot", "bytes_warm")})
    heads = ("tier", "until", "results", "bytes", "lost", "left_behind")
    print_table(heads, [[row[name] for name in heads] for row in found["passes"]])


async def _whole(node: Asked, tier: str, is_dry: bool) -> dict[str, Any]:
    """Run after run until nothing more can be done; the node answers others in between."""
    total: dict[str, Any] = {"tier": tier, "dry_run": is_dry, **dict.fromkeys(SUMMED, 0), "kept": {}, "runs": 0}
    after = 0
    while True:
        report = await node.call("gc.run", tier=tier, dry_run=is_dry, after=after)
        total |= {name: total[name] + report[name] for name in SUMMED}
        for why, count in report["kept"].items():
            total["kept"][why] = total["kept"].get(why, 0) + count if is_dry or tier == STRAY else count
        total["runs"] += 1
        if report["is_done"]:
            return total
        after = report["until"]
        what = "files" if tier == STRAY else "results"
        print(f"{tier}: {total['dropped']} {what}, {total['freed_bytes']} bytes …", file=sys.stderr)


def _print(reports: list[dict[str, Any]], is_dry: bool) -> None:
    heads = ("pass", "candidates", "let go", "bytes", "lost", "deleted", "ms")
    rows = [[each["tier"], *(each[name] for name in SUMMED)] for each in reports]
    print_table(heads, rows)
    for each in reports:
        for why, count in sorted(each["kept"].items()):
            print(f"{each['tier']}: {count} kept: {why}")
    if is_dry:
        print("nothing was changed")
