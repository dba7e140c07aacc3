"""`holdfast evidence export` and `asrun`: evidence carried away into files, resumed where the last time ended."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from holdfast.adapters.files import Folder
from holdfast.cli.asking import Asked, Ca, Data, Place, TokenFile, Url, run
from holdfast.cli.evidence.look import Channel, records, sessions
from holdfast.cli.speak import refuse
from holdfast.core.refusal import Refused
from holdfast.engine.asrun import AsRun
from holdfast.spool.names import SPOOL, why_not_id

LINES_A_WRITE: Final = 1_000
To = Annotated[Path, typer.Option("--to", help="The folder; it gets one for the channel.")]


def export(
    channel: Channel,
    to: To,
    session: Annotated[str | None, typer.Option(help="Only this session.")] = None,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Write the records of a channel as they came: FOLDER/CHANNEL/SESSION.spool.jsonl, one line each.

    What is there is checked and continued, so that it may be interrupted and run again. Nothing is missing between the
    lines of a file; where policy has let go of the beginning of a session, its file begins later and says so.
    """
    if (no := why_not_id("channel", channel)) is not None:
        refuse(no)

    async def carried(node: Asked) -> int:
        wanted = [one async for one in sessions(node, channel) if session in (None, one["session"])]
        if not wanted:
            refuse(_unknown(channel, session))
        return sum([await _carry(node, to / channel, channel, one["session"], one["pruned"]) for one in wanted])

    print(f"{run(Place(data, url, token_file, ca), carried)} records written to {to / channel}")


def _unknown(channel: str, session: str | None = None) -> Refused:
    """A name that was mistyped must not look like evidence that was carried away."""
    says = f"no session of channel {channel!r}" if session is None else f"no session {session!r} of channel {channel!r}"
    return Refused("EVD-001", f"{says} is here", "holdfast evidence ls", "NotFound")


async def _carry(node: Asked, folder: Path, channel: str, session: str, pruned: int) -> int:
    path = folder / f"{session}{SPOOL}"
    last = _last_of(path)
    if last < pruned:
        says = f"{path}: ends with {last or 'nothing'}, the node has let go of the records up to {pruned}"
        if last:
            refuse(Refused("EVD-008", says, "export into another folder", "EvidencePruned"))
        last = pruned
        print(f"{session}: the records up to {pruned} were let go of before")
    written = 0
    with path.open("ab") as file:
        async for lines in _in_lots(records(node, channel, session, last)):
            last = _follows(path, last, lines)
            file.write(b"".join(line.encode() + b"\n" for line in lines))
            written += len(lines)
        file.flush()
        os.fsync(file.fileno())
    return written


async def _in_lots(lines: AsyncIterator[str]) -> AsyncIterator[list[str]]:
    lot: list[str] = []
    async for line in lines:
        lot.append(line)
        if len(lot) >= LINES_A_WRITE:
            yield lot
            lot = []
    if lot:
        yield lot


def _follows(path: Path, last: int, lines: list[str]) -> int:
    """EVD-002: every line is the one after the last."""
    for line in lines:
        if _sequence(line.encode()) != last + 1:
            refuse(Refused("EVD-002", f"{path}: a record that does not follow {last}", "run holdfast db check"))
        last += 1
    return last


def _last_of(path: Path) -> int:
    """The last whole line of an earlier export, after a look at all of them; what was torn is cut off."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        return 0
    raw = path.read_bytes()
    whole = raw[: raw.rfind(b"\n") + 1]
    last = 0
    for line in whole.split(b"\n")[:-1]:
        sequence = _sequence(line)
        if sequence is None or (last and sequence != last + 1):
            hint = "it was changed: export into another folder"
            refuse(Refused("EVD-002", f"{path}: what follows record {last} is not the next one", hint))
        last = sequence
    if len(whole) < len(raw):
        os.truncate(path, len(whole))
    return last


def _sequence(line: bytes) -> int | None:
    try:
        return int(msgspec.json.decode(line)["sequence"])
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError):
        return None


def asrun(
    channel: Channel,
    to: To,
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Write the as-run log of a channel, by day: FOLDER/CHANNEL/YYYY-MM-DD.asrun, and .asrun.jsonl beside it.

    What the log has is not written again, so that it may be run as often as one likes.
    """
    if (no := why_not_id("channel", channel)) is not None:
        refuse(no)

    async def written(node: Asked) -> int:
        log, total = AsRun(Folder(to / channel), channel), 0
        wanted = [one async for one in sessions(node, channel)]
        if not wanted:
            refuse(_unknown(channel))
        for one in wanted:
            async for lines in _in_lots(records(node, channel, one["session"], None)):
                total += await log.write(lines)
        return total

    print(f"{run(Place(data, url, token_file, ca), written)} entries added to {to / channel}")
