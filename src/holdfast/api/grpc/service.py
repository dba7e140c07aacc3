"""A service of the gRPC server: its full name, its implementation, and how it is registered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec


class GrpcService(msgspec.Struct, frozen=True):
    """One service of a `.proto` file; its calls are authenticated."""

    name: str
    """As reflection and health show it: `holdfast.node.v1.NodeService`."""
    servicer: object
    register: Callable[[Any, Any], None]
    """The generated `add_…Servicer_to_server`."""
