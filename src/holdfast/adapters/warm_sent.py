"""Which lease has sent which output itself (JOB-010): empty files, durable like the bytes.

They are asked for until the lease has submitted, so old ones are deleted on the way.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from holdfast.core.base.values import Digest, LeaseId
from holdfast.system.durable_files import FOLDER_MODE, sync_folder

FOLDER: Final = "sent"
KEPT_S: Final = 30 * 86_400
"""Longer than any lease lives."""


def mark_sent(root: Path, lease_id: LeaseId, digest: Digest) -> None:
    path = _path_of(root, lease_id, digest)
    path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    for old in path.parent.iterdir():
        if old.stat().st_mtime < time.time() - KEPT_S:
            old.unlink(missing_ok=True)
    path.touch()
    for folder in (path.parent, path.parent.parent, root):
        sync_folder(folder)


def was_sent(root: Path, lease_id: LeaseId, digest: Digest) -> bool:
    return _path_of(root, lease_id, digest).exists()


def _path_of(root: Path, lease_id: LeaseId, digest: Digest) -> Path:
    return root / FOLDER / lease_id.hex()[:2] / f"{lease_id.hex()}-{digest.hex()}"
