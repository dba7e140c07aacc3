"""The sockets of a node's data folder: who may open them is an operator of the node."""

from __future__ import annotations

from typing import Final

SOCKET_NAME: Final = "node.sock"
"""JSON-RPC, one message a line: what nodes and the programs beside them speak."""
HTTP_SOCKET_NAME: Final = "http.sock"
"""The HTTP API, as everywhere else."""
