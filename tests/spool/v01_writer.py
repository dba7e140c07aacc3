"""A program of v0.1: it appends records to its spool file, takes no lock, and writes its ack file in place.

    python v01_writer.py ROOT CHANNEL SESSION [COUNT]

Each record is appended by two writes, so that now and then its line is half there. It prints a line when the first ten
records are there, ends when its standard input does, and prints the last sequence then.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from pathlib import Path


def line_of(channel: str, session: str, sequence: int) -> bytes:
    record = {
        "schema_version": 1,
        "channel_id": channel,
        "playout_session_id": session,
        "sequence": sequence,
        "event_uuid": f"uuid-{session}-{sequence}",
        "emitted_utc": "2026-02-13T10:00:00Z",
        "payload_type": "BLOCK_START",
        "payload": {"block_id": f"b-{sequence}", "swap_tick": sequence, "fence_tick": 0},
    }
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def main() -> None:
    root, channel, session = sys.argv[1:4]
    folder = Path(root) / channel
    folder.mkdir(parents=True, exist_ok=True)
    file = os.open(folder / f"{session}.spool.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    sequence = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        sequence += 1
        line = line_of(channel, session, sequence)
        half = len(line) // 2
        os.write(file, line[:half])
        time.sleep(0.001)
        os.write(file, line[half:])
        if sequence % 7 == 0:
            (folder / f"{session}.ack").write_text(f"acked_sequence={sequence - 3}\nupdated_utc=2026-02-13T10:00:00Z\n")
        if sequence == 10:
            print("ready", flush=True)
        time.sleep(0.001)
    print(sequence, flush=True)


if __name__ == "__main__":
    main()
