"""Where a node keeps its keys, below its data folder."""

from __future__ import annotations

from typing import Final

KEYS_FOLDER: Final = "keys"
NODE_KEY_FILE: Final = "node.pem"
