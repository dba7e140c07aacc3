"""`holdfast chain export`: write all headers of a node's chain into a folder that anybody can verify."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from holdfast.adapters.files import AtomicFolder
from holdfast.adapters.keys.signing import verify as check_signature
from holdfast.cli.chain.reader import ChainReader
from holdfast.cli.terminal.node_client import NodeSession, run_on_node
from holdfast.cli.terminal.options import Json, NodeAddress, on_node
from holdfast.cli.terminal.progress import ProgressLine
from holdfast.cli.terminal.reporting import value_or_exit
from holdfast.cli.terminal.tables import pluralize, print_json
from holdfast.core.base.errors import Corrupt, Refused
from holdfast.lightclient import header_export
from holdfast.lightclient.headers import VerificationFailed

TRIES: Final = 3


@on_node
def export(
    address: NodeAddress,
    to: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, or one with an earlier export.")],
    as_json: Json = False,
) -> None:
    """Write the headers of the active chain into a folder, for `holdfast chain verify DIR` on any machine.

    Repeated into the same folder, it adds new headers and removes those that were rolled back. Headers are public:
    --url exports those of a node that is not yours.
    """
    progress, folder = ProgressLine("exporting"), AtomicFolder(to)

    async def export_headers(node: NodeSession) -> header_export.HeaderManifest | Refused:
        with folder.exclusive():
            return await _export_with_retries(node, folder, progress)

    manifest = value_or_exit(run_on_node(address, export_headers))
    progress.end()
    if as_json:
        print_json(manifest)
        return
    print(f"{pluralize(manifest.blocks, 'header')} of chain {manifest.chain_id} in {to}, the last is {manifest.head}")
    for key, first in manifest.proposers.items():
        print(f"signed by {key} from block {first} on")
    print(f"check them anywhere with: holdfast chain verify {to}")


async def _export_with_retries(
    node: NodeSession, folder: AtomicFolder, progress: ProgressLine
) -> header_export.HeaderManifest | Refused:
    """A rollback may happen while the chain is read. Then it is read again, before the node is blamed."""
    for left in reversed(range(TRIES)):
        reader = await ChainReader.open(node)
        progress.total = reader.head.header.height
        try:
            return await header_export.export(folder, reader.source(), check_signature, progress.show_height)
        except VerificationFailed as fault:
            if not left:
                message = f"the node returned an inconsistent chain: {fault}"
                raise Corrupt("CHN-001", message, _INCONSISTENT_HINT) from fault
    raise AssertionError("every try returns or raises")


_INCONSISTENT_HINT: Final = "holdfast chain replay shows whether the journal gives another one"
