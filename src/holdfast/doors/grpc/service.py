"""What plugs into the gRPC door: a service's full name, who answers it, and how gRPC is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec


class Service(msgspec.Struct, frozen=True):
    """One service of a `.proto` file; everybody who calls it is identified first."""

    name: str
    """As reflection and health tell it: `holdfast.node.v1.NodeService`."""
    servicer: object
    add: Callable[[Any, Any], None]
    """The generated `add_…Servicer_to_server`."""
