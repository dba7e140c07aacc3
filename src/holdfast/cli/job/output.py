"""`holdfast job output`: the bytes that a job's program wrote, checked against the digest in the chain (RES-009)."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.terminal.archive_fetch import fetch_to_file
from holdfast.cli.terminal.node_client import FETCH_TIMEOUT_S, blocking_client, find_job
from holdfast.cli.terminal.options import ConfigFile, NodeAddress, on_node
from holdfast.cli.terminal.progress import ProgressLine
from holdfast.cli.terminal.reporting import load_settings, report_errors
from holdfast.client import NodeRefused

if TYPE_CHECKING:
    from holdfast.client import Client
    from holdfast.client.answers import JobResult

JobArgument = Annotated[str, typer.Argument(metavar="TASK_ID", help="The job's id, or the beginning of it.")]


@on_node
def output(
    address: NodeAddress,
    task_id: JobArgument,
    file: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file. [default: stdout]")
    ] = None,
    config: ConfigFile = None,
) -> None:
    """Write the output of a job, checked against the digest in the chain. Nothing is written if it does not match.

    An output is for its job's caller, for the provider that made it, for operators and auditors. A download that breaks
    off is resumed. Bytes that the node has deleted come from its archive; where the node does not fetch them, this
    command does, if the settings name the archive.
    """
    write_output(address, task_id, file, config)


def write_output(address: NodeAddress, task_id: str, file: Path | None = None, config: Path | None = None) -> None:
    """To the file, or to standard output; a file appears when it is complete."""
    task_id = find_job(address, task_id)
    with report_errors(), blocking_client(address, answer_timeout_s=FETCH_TIMEOUT_S) as client:
        try:
            print_output(client, task_id, file)
        except NodeRefused as refusal:
            settings = load_settings(config, {"data": address.data})
            if refusal.name != "ResultPruned" or not settings.archive.is_configured:
                raise
            _write(lambda part: fetch_to_file(settings, address, task_id, part), file)


def print_output(client: Client, job: str | JobResult, file: Path | None) -> None:
    """With a client that is open."""
    progress = ProgressLine("downloading")
    try:
        _write(lambda part: client.download(job, part, progress=progress.show_bytes), file)
    finally:
        progress.end()


def _write(fetch: Callable[[Path], object], file: Path | None) -> None:
    """To the file, or through one to standard output: a large output is not for memory."""
    if file is not None:
        fetch(file)
        return
    with TemporaryDirectory(prefix="holdfast-") as folder:
        part = Path(folder) / "output"
        fetch(part)
        with part.open("rb") as output_file:
            shutil.copyfileobj(output_file, sys.stdout.buffer)
