"""What blobs publish to the state machine; sealing and rolling back are workflows."""

from __future__ import annotations

from typing import Final

from holdfast.core.base.handlers import Commands, Events
from holdfast.core.blob import apply, decide
from holdfast.core.blob.messages import AddBlob, BlobAdded, ReaddBlobs

COMMANDS: Final[Commands] = {AddBlob: decide.add_blob, ReaddBlobs: decide.readd_blobs}
EVENTS: Final[Events] = {BlobAdded: apply.apply_added}
