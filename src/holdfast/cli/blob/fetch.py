"""`holdfast blob fetch TASK_ID`: a result's bytes from the archive, by their locators, checked at every step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.terminal.archive_fetch import fetch_to_file
from holdfast.cli.terminal.options import ConfigFile, Json, NodeAddress, on_node
from holdfast.cli.terminal.reporting import load_settings, report_errors
from holdfast.cli.terminal.tables import print_outcome
from holdfast.core.base.errors import Unavailable


@on_node
def fetch(
    address: NodeAddress,
    task_id: Annotated[str, typer.Argument(metavar="TASK_ID", help="The job's id, or the beginning of it.")],
    out: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Write the bytes to this new file.")],
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Fetch a result's bytes from the archive that the settings name, and verify them.

    The node says where they are and how they are encrypted, for whoever may read the output. Every blob is checked by
    its Keccak-256 and its KZG proof, the whole by the result's digest. The file appears when all of it is right.
    """
    settings = load_settings(config, {"data": address.data})
    with report_errors():
        if out.exists():
            raise Unavailable("ARC-004", f"{out} exists", "name a new file")
        size = fetch_to_file(settings, address, task_id, out)
    answer = {"task_id": task_id, "size": size, "file": str(out)}
    print_outcome(answer, f"{size} bytes of {task_id}, verified, in {out}", as_json=as_json)
