"""Authentication by API key (SEC-001), the same for HTTP, WebSocket and gRPC.

A token is `hf_<key id>_<secret>`; the node knows only the secret's hash. A token is never stored, logged or sent back.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from holdfast.api.node_access import ANONYMOUS, NodeAccess, Principal, principal_of
from holdfast.core.base.errors import Refused
from holdfast.engine.queries.accounts import AuthenticateKey
from holdfast.ports import Clock

_BEARER: Final = re.compile(r"bearer +([!-~]{1,1024})", re.IGNORECASE)
_TOKEN: Final = re.compile(r"hf_([0-9a-f]{16})_([A-Za-z0-9_-]{22,86})")
_NOT_A_TOKEN: Final = Refused("SEC-001", "this is not a token", "a token begins with hf_", "Unauthorized")


def bearer_token(headers: Sequence[str]) -> str | Refused | None:
    """The token in the `authorization` headers of a request; None where there is no such header.

    The refusal does not repeat the header: it may be a secret in the wrong form.
    """
    if not headers:
        return None
    match = _BEARER.fullmatch(headers[0].strip()) if len(headers) == 1 else None
    if match is None:
        message = "authorization: one bearer token is expected"
        return Refused("SEC-001", message, "send `Authorization: Bearer <token>`", "Unauthorized")
    return match[1]


class TokenAuthenticator:
    """From a token to the principal of its key."""

    def __init__(self, access: NodeAccess, clock: Clock, guest: Principal = ANONYMOUS) -> None:
        """Without a token a request is the guest's: on a socket of the data folder whoever can open it is LOCAL."""
        self._access, self._clock, self._guest = access, clock, guest

    async def authenticate(self, token: str | None) -> Principal | Refused:
        """The principal of a token; the guest without one.

        A valid key is accepted from undurable state: what its holder asks waits for durability itself, and thereby for
        the key. A refusal may rest on a change that is not durable yet, so it waits until it is.
        """
        principal = self.authenticate_undurable(token)
        if principal is not None:
            return principal
        query = self._query(token or "")
        if query is None:
            return _NOT_A_TOKEN
        key = await self._access.source.query_durable(query)
        return key if isinstance(key, Refused) else principal_of(key)

    def authenticate_undurable(self, token: str | None) -> Principal | None:
        """The principal of a token as memory has it now; None where the token is refused."""
        if token is None:
            return self._guest
        query = self._query(token)
        key = None if query is None else self._access.source.query_undurable(query)
        return None if key is None or isinstance(key, Refused) else principal_of(key)

    def _query(self, token: str) -> AuthenticateKey | None:
        match = _TOKEN.fullmatch(token)
        if match is None:
            return None
        now_ms = max(self._clock.wall_ms(), self._access.source.replication_status().tip.time_ms)
        return AuthenticateKey(match[1], match[2].encode(), now_ms)
