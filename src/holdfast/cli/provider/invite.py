"""`holdfast provider invite`: a token for one use that gives a provider without a stake a place (SEC-002)."""

from __future__ import annotations

import secrets
import sys
from typing import Annotated, Any

import typer

from holdfast.adapters.clock import MachineClock
from holdfast.cli.terminal.node_client import call_node
from holdfast.cli.terminal.options import Json, NodeAddress, on_node
from holdfast.cli.terminal.tables import format_time, print_outcome
from holdfast.core.policy import DAY_MS
from holdfast.core.provider.invitations import invitation_digest
from holdfast.wire.signed_messages import invitation_token


@on_node
def invite(
    address: NodeAddress,
    days: Annotated[int, typer.Option(min=1, max=7, help="How long it is valid.")] = 7,
    as_json: Json = False,
) -> None:
    """Make an invitation for one provider and print it, once: the node stores only its hash.

    It gives a place and lets evidence be stored before there is a stake. To get jobs a provider still needs its stake.
    """
    secret, expires_ms = secrets.token_bytes(32), MachineClock().wall_ms() + days * DAY_MS - _MARGIN_MS
    told: dict[str, Any] = {"invitation": invitation_digest(secret, expires_ms).hex(), "expires_ms": expires_ms}
    call_node(address, "provider.invite", **told)
    token = invitation_token(secret, expires_ms)
    print_outcome({"invitation": token, "expires_ms": expires_ms}, token, as_json=as_json)
    print(f"valid for one registration until {format_time(expires_ms)}", file=sys.stderr)


_MARGIN_MS = 60_000
"""The node's clock may be a little behind ours."""
