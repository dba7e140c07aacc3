"""Sessions of people who look at the page: a cookie instead of a token (SEC-001).

The token stays in this process's memory; the cookie is a random name for it that scripts cannot read. It is only
honoured for requests of the page itself: another site's carry no cookie (SameSite), or another origin.
"""

from __future__ import annotations

import secrets
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import urlsplit

from holdfast.api.http.responses import Header, Scope, token_of
from holdfast.core.base.errors import Refused
from holdfast.ports import Clock

COOKIE: Final = "holdfast_session"
SESSION_MS: Final = 12 * 3_600_000
SESSIONS_MAX: Final = 1_024
SAFE_METHODS: Final = frozenset({"GET", "HEAD"})


class PageSessions:
    """Cookies of this process, each with its token and its end. A restart ends all of them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tokens: dict[str, tuple[str, int]] = {}

    def begin(self, token: str) -> tuple[str, int]:
        """A new cookie and when it ends; beyond the limit the oldest session ends."""
        while len(self._tokens) >= SESSIONS_MAX:
            del self._tokens[next(iter(self._tokens))]
        name, until_ms = secrets.token_urlsafe(32), self._clock.wall_ms() + SESSION_MS
        self._tokens[name] = token, until_ms
        return name, until_ms

    def end(self, scope: Scope) -> None:
        self._tokens.pop(cookie_of(scope), None)

    def has(self, scope: Scope) -> bool:
        """Whether a request has the cookie of a session, and no token of its own."""
        return token_of(scope["headers"]) is None and cookie_of(scope) in self._tokens

    def token_of(self, scope: Scope) -> str | Refused | None:
        """The token of a request: its own, or that of its session where the request comes from the page itself."""
        if (token := token_of(scope["headers"])) is not None:
            return token
        token, until_ms = self._tokens.get(cookie_of(scope), (None, 0))
        if token is None or self._clock.wall_ms() >= until_ms:
            return None
        return why_not_same_origin(scope) or token


def cookie_of(scope: Scope) -> str:
    return named_cookie(scope, COOKIE)


def named_cookie(scope: Scope, name: str) -> str:
    """The value of a cookie; empty where the request has none of that name."""
    raw = _header(scope, b"cookie")
    if name not in raw:
        return ""
    try:
        morsel = SimpleCookie(raw).get(name)
    except CookieError:
        return ""
    return morsel.value if morsel is not None else ""


def why_not_same_origin(scope: Scope) -> Refused | None:
    """A request with a cookie must come from a page of this very server; one that changes something must say so."""
    origin, host = _header(scope, b"origin"), _header(scope, b"host")
    if not origin and scope.get("method", "GET") in SAFE_METHODS:
        return None
    if host and urlsplit(origin).netloc == host:
        return None
    return Refused("SEC-001", "a session is only for the page of this node", "send a token instead", "Forbidden")


def _header(scope: Scope, wanted: bytes) -> str:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == wanted), "")


def session_cookie(name: str, max_age_s: int, *, is_secure: bool) -> Header:
    parts = [f"{COOKIE}={name}", "HttpOnly", "SameSite=Strict", "Path=/", f"Max-Age={max_age_s}"]
    return b"set-cookie", "; ".join([*parts, "Secure"] if is_secure else parts).encode()
