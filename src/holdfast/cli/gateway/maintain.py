"""`holdfast gateway check | scrub | reindex | stats`: what is stored, whether it is whole, and a new index."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

import typer

from holdfast.app.log_output import configure_logging
from holdfast.cli.gateway.serve import gateway_config
from holdfast.cli.terminal.options import ConfigFile, Data, Json
from holdfast.cli.terminal.reporting import format_finding, report_errors
from holdfast.cli.terminal.tables import pluralize, print_json, print_record
from holdfast.config import gateway_folder

if TYPE_CHECKING:
    from holdfast.gateway.item_store import ItemStore
    from holdfast.gateway.maintenance import Report

T = TypeVar("T")
DAMAGED = 1
FINDINGS_SHOWN = 20


def check(data: Data = None, config: ConfigFile = None, as_json: Json = False) -> None:
    """Check that every upload has its record, its data and its place in the index; data is not read.

    It may run beside a gateway that serves. Exit code 1 if something is missing.
    """
    from holdfast.gateway.maintenance import check_store  # noqa: PLC0415

    _finish(_run(data, config, check_store), as_json)


def scrub(data: Data = None, config: ConfigFile = None, as_json: Json = False) -> None:
    """Read everything that is stored and check every hash and signature, now and at full speed.

    A gateway that serves does the same in the background, spread over gateway.scrub_hours. Exit code 1 if something is
    missing or damaged: upload it again, and the damaged copy is replaced.
    """
    from holdfast.adapters.keys.item_signatures import is_signed_by_owner  # noqa: PLC0415
    from holdfast.gateway.maintenance import Report, read_all  # noqa: PLC0415

    _finish(_run(data, config, lambda store: read_all(store, is_signed_by_owner, Report())), as_json)


def reindex(data: Data = None, config: ConfigFile = None, as_json: Json = False) -> None:
    """Build the index again from what is stored. The gateway must not run."""
    report = _run(data, config, _rebuild, is_complete=True)
    if as_json:
        _finish(report, as_json=True)
        return
    print(f"{pluralize(report.added, 'upload')} in the index")
    if report.findings_total:
        _finish(report, as_json=False)


def stats(data: Data = None, config: ConfigFile = None, as_json: Json = False) -> None:
    """Show how much is stored, by the index."""

    async def read(store: ItemStore) -> tuple[int, int]:
        return await store.index.totals()

    items, size = _run(data, config, read)
    answer = {"total_dataitems_count": items, "total_dataitems_size": size}
    print_json(answer) if as_json else print_record(answer)


async def _rebuild(store: ItemStore) -> Report:
    from holdfast.gateway.maintenance import repair_index  # noqa: PLC0415

    await store.index.open()
    await store.index.clear()
    return await repair_index(store)


def _run(
    data: Path | None, config: Path | None, work: Callable[[ItemStore], Awaitable[T]], *, is_complete: bool = False
) -> T:
    """What `work` returns. The index is closed as complete only by a command that has opened and filled it."""
    settings = gateway_config(data, config, {})
    configure_logging(settings.log)
    from holdfast.gateway.stores import make_store  # noqa: PLC0415 - the settings are checked before this is loaded

    async def run() -> T:
        store = make_store(settings.gateway, settings.postgres, gateway_folder(settings))
        try:
            outcome = await work(store)
        except BaseException:
            await store.index.close(is_complete=False)
            raise
        await store.index.close(is_complete=is_complete)
        await store.objects.close()
        return outcome

    with report_errors():
        return asyncio.run(run())
    raise AssertionError("report_errors ends the program")


def _finish(report: Report, as_json: bool) -> None:
    if as_json:
        print_json(report)
    else:
        is_good = report.findings_total == 0
        message = f"{pluralize(report.uploads, 'upload')}, {pluralize(report.findings_total, 'fault')}"
        print(format_finding(is_good, "gateway", message))
        for finding in report.findings[:FINDINGS_SHOWN]:
            print(f"  {finding.object}: {finding.fault}", file=sys.stderr)
    if report.findings_total:
        _exit_damaged()


def _exit_damaged() -> NoReturn:
    raise typer.Exit(DAMAGED)
