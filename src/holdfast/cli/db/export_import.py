"""`holdfast db export` and `import`: a backup of a running node, and the move from one kind of store to the other."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from holdfast.adapters.clock import MachineClock
from holdfast.adapters.export_folders import ExportFolders
from holdfast.adapters.files import AtomicFolder
from holdfast.adapters.objects.object_files import ObjectFiles
from holdfast.adapters.objects.settings import REMOTE, SharedObjects, make_objects
from holdfast.app.stores import prepare_folder
from holdfast.cli.db.stores import open_stores
from holdfast.cli.terminal.durations import parse_duration_ms
from holdfast.cli.terminal.options import ConfigFile, Data, Json
from holdfast.cli.terminal.progress import ProgressLine
from holdfast.cli.terminal.reporting import load_settings, refuse, report_errors, value_or_exit
from holdfast.cli.terminal.tables import print_outcome
from holdfast.config import Config
from holdfast.core.base.errors import Refused
from holdfast.history.archive_segments import parse_segment_name
from holdfast.history.export_import import MANIFEST, ExportManifest, export_journal, import_journal
from holdfast.ports import Files

EXPORT_FOLDER: Final = "export"
"""Of a bucket, what belongs to an export."""

EVERY_MS_MIN: Final = 1_000
Endpoint = Annotated[
    str | None,
    typer.Option(metavar="URL", help="The S3-compatible server of the bucket. [default: that of the settings, or AWS]"),
]


def export(
    to: Annotated[
        str, typer.Option(metavar="DIR", help="A folder or s3://bucket/folder: new, or with an earlier export.")
    ],
    data: Data = None,
    config: ConfigFile = None,
    every: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="6h: export again and again, each into a new folder below DIR."),
    ] = None,
    keep: Annotated[int, typer.Option(min=1, metavar="N", help="With --every: how many exports stay.")] = 7,
    metrics: Annotated[
        int | None,
        typer.Option(metavar="PORT", help="With --every: serve metrics for Prometheus on this loopback port."),
    ] = None,
    endpoint: Endpoint = None,
    as_json: Json = False,
) -> None:
    """Write the whole history into a folder, as a backup. A running node is not disturbed.

    It has everything that was confirmed before the export began. Repeated into the same folder, it adds what is new and
    never rewrites a segment. The export is read back and folded before manifest.json is replaced; until then an import
    sees the previous export.

    With --every it goes on until Ctrl-C or SIGTERM. Each export is a folder named by its time, which shares what did
    not change with the one before it; one that was interrupted is continued, the oldest are deleted.

    It is history only: the node's keys and the outputs in its folder warm/ are not part of it. Copy them as well.
    """
    settings = load_settings(config, {"data": data}, with_stores=True)
    progress = ProgressLine("exporting")
    if every is not None:
        if to.startswith(REMOTE):
            refuse(Refused("ENG-004", "--every: into folders of this machine alone", "name a folder", "InvalidParams"))
        _export_every(settings, Path(to), parse_duration_ms("--every", every), keep, metrics)
        return
    with report_errors():
        answer = asyncio.run(_export_into(settings, progress, to, endpoint))
        progress.end()
        manifest = value_or_exit(answer)
        print_outcome(_as_values(manifest), f"exported {_describe(manifest)} to {to}", as_json=as_json)


async def _export_into(
    settings: Config, progress: ProgressLine, to: str | Path, endpoint: str | None = None
) -> ExportManifest | Refused:
    folder = _folder(str(to), settings, endpoint)
    if await _is_foreign(folder):
        return Refused("ENG-004", f"{to} has other files", "choose a new folder or one with an earlier export")
    async with open_stores(settings) as stores:
        # This fails if there is no journal, before the folder is created.
        progress.total = (await stores.journal.tip()).number
        with folder.exclusive() if isinstance(folder, AtomicFolder) else nullcontext():
            return await export_journal(stores.journal, folder, stores.policy, progress.show_batch)


def _export_every(settings: Config, root: Path, every_ms: int, keep: int, metrics_port: int | None) -> None:
    from holdfast.cli.db.export_schedule import ExportSchedule, run_until_signal  # noqa: PLC0415 - one export needs none

    if every_ms < EVERY_MS_MIN:
        message = f"--every: {every_ms} ms is less than a second"
        refuse(Refused("ENG-004", message, "write 15m, 6h or 1d", "InvalidParams"))
    folders, progress = ExportFolders(root), ProgressLine("exporting")
    export_into = partial(_export_into, settings, progress)
    schedule = ExportSchedule(folders, export_into, MachineClock(), every_ms=every_ms, keep=keep)

    async def run() -> Refused | None:
        if refusal := await folders.why_not():
            return refusal
        with folders.exclusive():
            await run_until_signal(schedule, metrics_port)
        return None

    with report_errors():
        value_or_exit(asyncio.run(run()))


def import_(
    from_: Annotated[str, typer.Option("--from", metavar="DIR", help="An export: a folder, or s3://bucket/folder.")],
    data: Data = None,
    config: ConfigFile = None,
    store: Annotated[str | None, typer.Option(metavar="sqlite|postgres", help="Which store. [default: sqlite]")] = None,
    endpoint: Endpoint = None,
    as_json: Json = False,
) -> None:
    """Fill an empty store from an export: restore a backup, or move from one kind of store to the other.

    Every segment, the hash chain, every payload and the folded state are verified against manifest.json before anything
    is written, and what was written is read back. A store that is not empty is refused, unless it has the beginning of
    this export: then an interrupted import is continued.

    The first start afterwards builds the tables. Never run both the old and the restored node: they would be two
    histories with one past.
    """
    settings = load_settings(config, {"data": data, "store": store}, with_stores=True)
    progress = ProgressLine("importing")

    async def import_history() -> ExportManifest | Refused:
        source = _folder(from_, settings, endpoint, must_exist=True)
        prepare_folder(settings.data)
        async with open_stores(settings) as stores:
            return await import_journal(source, stores.journal, stores.policy, progress.show_batch)

    with report_errors():
        answer = asyncio.run(import_history())
        progress.end()
        manifest = value_or_exit(answer)
        print_outcome(
            _as_values(manifest),
            f"imported {_describe(manifest)} into {settings.data}",
            f"copy keys/ and warm/ of the old folder into {settings.data} first: an export does not have them",
            f"start it with: holdfast up --data {settings.data}",
            as_json=as_json,
        )


def _as_values(manifest: ExportManifest) -> dict[str, object]:
    return {"events": manifest.events, "batches": manifest.batches, "state": manifest.digest}


def _describe(manifest: ExportManifest) -> str:
    return f"{manifest.events} events in {manifest.batches} batches, state {manifest.digest}"


def _folder(place: str, settings: Config, endpoint: str | None, *, must_exist: bool = False) -> Files:
    """A folder of this machine, or of a bucket; its server is that of the shared folders, else of the archive."""
    if place.startswith(REMOTE):
        server = endpoint or settings.objects.endpoint or settings.archive.endpoint
        objects = make_objects(SharedObjects(url=place, endpoint=server if place.startswith("s3://") else ""))
        assert objects is not None
        return ObjectFiles(objects, EXPORT_FOLDER)
    if must_exist and not Path(place).is_dir():
        refuse(Refused("ENG-004", f"--from: {place} is no folder", "name an export", "InvalidParams"))
    return AtomicFolder(Path(place))


async def _is_foreign(folder: Files) -> bool:
    """Whether the folder has files and none of them belongs to an export."""
    names = await folder.names()
    return bool(names) and not any(name == MANIFEST or parse_segment_name(name) for name in names)
