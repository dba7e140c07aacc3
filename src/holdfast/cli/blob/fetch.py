"""`holdfast blob fetch TASK_ID`: a result's bytes from the archive, by their locators, checked at every step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.terminal.archive_fetch import fetch_to_file
from holdfast.cli.terminal.node_client import NodeAddress
from holdfast.cli.terminal.options import Ca, ConfigFile, Data, TokenFile, Url
from holdfast.cli.terminal.reporting import load_settings, report_errors
from holdfast.core.base.errors import Unavailable


def fetch(
    task_id: Annotated[str, typer.Argument(metavar="TASK_ID", help="The job.")],
    out: Annotated[Path, typer.Option("--out", help="Write the bytes to this new file.")],
    data: Data = None,
    config: ConfigFile = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Fetch a result's bytes from the archive that the settings name, and verify them.

    The node says where they are and how they are encrypted, for whoever may read the output. Every blob is checked by
    its Keccak-256 and its KZG proof, the whole by the result's digest. The file appears when all of it is right.
    """
    settings = load_settings(config, {"data": data})
    with report_errors():
        if out.exists():
            raise Unavailable("ARC-004", f"{out} exists", "name a new file")
        size = fetch_to_file(settings, NodeAddress(data, url, token_file, ca), task_id, out)
        print(f"{size} bytes of {task_id}, verified, in {out}")
