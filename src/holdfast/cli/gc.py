"""`holdfast gc`: run retention's passes, or show what they would delete, what they would keep, and why."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from holdfast.cli import make_app
from holdfast.cli.terminal.node_client import NodeSession, call_node, run_on_node
from holdfast.cli.terminal.options import Json, NodeAddress, on_node
from holdfast.cli.terminal.progress import ProgressLine
from holdfast.cli.terminal.reporting import refuse
from holdfast.cli.terminal.tables import print_json, print_record, print_table
from holdfast.core.base.errors import Refused
from holdfast.core.retention.model import Pass

app = make_app(
    no_args_is_help=True,
    help="Delete bytes, records and orphaned files that retention no longer needs, in bounded passes.",
)
PASSES: Final = (Pass.HOT.value, Pass.WARM.value, Pass.RECORDS.value, Pass.ORPHANS.value)
SUMMED_FIELDS: Final = ("looked", "dropped", "freed_bytes", "lost", "deleted", "ms")


@app.command("run", example="holdfast gc run --dry-run\nholdfast gc run --pass orphans")
@on_node
def run_(
    address: NodeAddress,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; show what would be done.")] = False,
    pass_: Annotated[
        str | None,
        typer.Option("--pass", metavar="|".join(PASSES), help="Only this pass. [default: all, in this order]"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run the passes on a running node until nothing more can be deleted; report what was freed and kept, and why.

    \b
    hot      delete bytes from the store, if the disk or the archive verifiably has them
    warm     delete bytes from the disk, if the archive verifiably has them
    records  replace records by tombstones; delete tombstones when the audit window ends
    orphans  delete files from the disk that no result and no completion needs

    In the report, `dropped` counts results (orphans: files) and `deleted` the rows or files that are gone.
    """
    passes = [pass_.lower()] if pass_ is not None else list(PASSES)
    if not set(passes) <= set(PASSES):
        message, hint = f"--pass: no pass {pass_!r:.40}", f"one of {', '.join(PASSES)}"
        refuse(Refused("RET-003", message, hint, "InvalidParams"))

    async def run_passes(node: NodeSession) -> list[dict[str, Any]]:
        return [await _run_pass(node, each, dry_run, progress) for each in passes]

    progress = ProgressLine("deleting")
    try:
        reports = run_on_node(address, run_passes)
    finally:
        progress.end()
    if as_json:
        print_json(reports)
        return
    _print_reports(reports, dry_run)


@app.command(example="holdfast gc status")
@on_node
def status(address: NodeAddress, as_json: Json = False) -> None:
    """Show how far each pass has come, and how many bytes are in the store and on the disk."""
    retention = call_node(address, "gc.getStatus")
    if as_json:
        print_json(retention)
        return
    print_record({name: retention[name] for name in ("watermark", "bytes_hot", "bytes_warm")})
    heads = ("tier", "until", "results", "bytes", "lost", "skipped")
    print_table(heads, [[row[name] for name in heads] for row in retention["passes"]])


async def _run_pass(node: NodeSession, tier: str, is_dry: bool, progress: ProgressLine) -> dict[str, Any]:
    """Run a pass until nothing more can be done; each run is bounded, so that the node answers others in between."""
    total: dict[str, Any] = {"tier": tier, "dry_run": is_dry, **dict.fromkeys(SUMMED_FIELDS, 0), "kept": {}, "runs": 0}
    after = 0
    while True:
        report = await node.call("gc.run", tier=tier, dry_run=is_dry, after=after)
        total |= {name: total[name] + report[name] for name in SUMMED_FIELDS}
        for reason, count in report["kept"].items():
            # A dry run and the orphans' pass look at each candidate once. The other runs retry what was kept before.
            is_seen_once = is_dry or tier == Pass.ORPHANS.value
            total["kept"][reason] = total["kept"].get(reason, 0) + count if is_seen_once else count
        total["runs"] += 1
        if report["is_done"]:
            return total
        after = report["until"]
        unit = "files" if tier == Pass.ORPHANS.value else "results"
        progress.show_text(f"{tier}, {total['dropped']} {unit}, {total['freed_bytes']} bytes freed")


def _print_reports(reports: list[dict[str, Any]], is_dry: bool) -> None:
    heads = ("pass", "candidates", "dropped", "bytes", "lost", "deleted", "ms")
    print_table(heads, [[report["tier"], *(report[name] for name in SUMMED_FIELDS)] for report in reports])
    for report in reports:
        for reason, count in sorted(report["kept"].items()):
            print(f"{report['tier']}: {count} kept: {reason}")
    if is_dry:
        print("nothing was changed")
