"""`holdfast chain export`: all headers of a node's chain into a folder that anybody can verify."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from holdfast.adapters.files import Folder
from holdfast.adapters.keys.signing import verify
from holdfast.cli.asking import Asked, Ca, Data, Place, TokenFile, Url, run
from holdfast.cli.chain.look import counted
from holdfast.cli.chain.reading import ChainReader, Heights
from holdfast.cli.speak import given
from holdfast.core.refusal import Corrupt, Refused
from holdfast.engine import headerfiles
from holdfast.engine.headers import Untrue

TRIES: Final = 3


def export(
    to: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, or one with an earlier export.")],
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Write the headers of the active chain into a folder, for `holdfast chain verify DIR` on any machine.

    Made again into the same folder, it adds only what is new, and takes out what a rollback took back. Headers are
    public: --url exports those of a node that is not yours.
    """
    progress, folder = Heights("exporting"), Folder(to)

    async def work(node: Asked) -> headerfiles.Manifest | Refused:
        with folder.alone():
            return await _patiently(node, folder, progress)

    done = given(run(Place(data, url, token_file, ca), work))
    progress.end()
    print(f"{counted(done.blocks, 'header')} of chain {done.chain_id} in {to}, the last is {done.head}")
    for key, first in done.proposers.items():
        print(f"signed by {key} from block {first} on")
    print(f"check them anywhere with: holdfast chain verify {to}")


async def _patiently(node: Asked, folder: Folder, progress: Heights) -> headerfiles.Manifest | Refused:
    """A rollback may come while we read: what does not fit is read again from where both agree, and then believed."""
    for left in reversed(range(TRIES)):
        reader = await ChainReader.of(node)
        try:
            return await headerfiles.export(folder, reader.source(), verify, progress)
        except Untrue as fault:
            if not left:
                raise Corrupt("CHN-001", f"the node shows a chain that is none: {fault}", _DOUBT) from fault
    raise AssertionError("every try ends")


_DOUBT: Final = "holdfast chain replay says whether its journal gives another one"
