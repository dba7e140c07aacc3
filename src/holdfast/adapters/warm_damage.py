"""Damaged copies of the warm tier (TIER-001): set aside when a good copy takes their place, for whoever asks why."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import structlog

from holdfast.core.base.values import Digest
from holdfast.system.durable_files import FOLDER_MODE, rename_file, replace_file

FOLDER: Final = "damaged"
DAMAGED_MAX: Final = 64
"""Copies that are kept; of more the oldest are deleted, so that a failing disk is not filled with them."""
_log = structlog.get_logger()


def set_file_aside(root: Path, file: Path, digest: Digest) -> None:
    """Move a damaged file out of the way."""
    path = _next_path(root, digest)
    rename_file(file, path)
    _log.error("damaged_output_replaced", digest=digest.hex(), set_aside=str(path))


def set_bytes_aside(root: Path, raw: bytes, digest: Digest) -> None:
    """The same for damaged bytes of a row, which the caller is about to replace."""
    path = _next_path(root, digest)
    replace_file(path, raw)
    _log.error("damaged_output_replaced", digest=digest.hex(), set_aside=str(path))


def _next_path(root: Path, digest: Digest) -> Path:
    """A name that sorts after those of earlier copies."""
    folder = root / FOLDER
    folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
    for surplus in sorted(folder.iterdir())[: -(DAMAGED_MAX - 1)]:
        surplus.unlink(missing_ok=True)
    return folder / f"{time.time_ns():020d}-{digest.hex()}"
