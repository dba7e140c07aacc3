"""`holdfast job logs`: what a job reports while it runs; nothing proves it."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import Annotated

import typer

from holdfast.cli.job.show import JobArgument
from holdfast.cli.terminal.node_client import blocking_client, find_job
from holdfast.cli.terminal.options import JsonLines, NodeAddress, on_node
from holdfast.cli.terminal.reporting import report_errors
from holdfast.cli.terminal.tables import print_json_line


@on_node
def logs(
    address: NodeAddress,
    task_id: JobArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    as_json: JsonLines = False,
) -> None:
    """Print what a job has reported: its log, and its progress as percent. For its caller and for operators."""
    whole_id = find_job(address, task_id)
    with report_errors(), blocking_client(address) as client, closing(client.logs(whole_id, follow=follow)) as entries:
        for entry in entries:
            if as_json:
                print_json_line(entry)
                continue
            print(entry.text if entry.percent is None else f"{entry.percent:>3} %  {entry.text}".rstrip())
            sys.stdout.flush()
