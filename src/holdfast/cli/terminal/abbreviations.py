"""Ids as people type them: the beginning of one, a key's label, a block's height or the beginning of its hash.

Jobs and providers are found by the node; what is searched here are lists that the node gives page by page.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

from holdfast.cli.terminal.reporting import refuse
from holdfast.core.base.errors import Refused

if TYPE_CHECKING:
    from holdfast.cli.terminal.node_client import NodeSession

WHOLE_ID: Final = re.compile(r"[0-9a-f]{64}")
_BEGINNING: Final = re.compile(r"[0-9a-f]{4,64}")
PAGE: Final = 1_000
PAGES_MAX: Final = 20
"""How far back an abbreviation is looked for, newest first."""
NAMED_MAX: Final = 8


async def find_key(node: NodeSession, text: str) -> str:
    """A key by its id, the beginning of it, or its label; one that is revoked only by its whole id."""
    return choose_key((await node.call("key.listKeys"))["keys"], text, "`holdfast key list` shows ids and labels")


def choose_key(keys: list[dict[str, Any]], text: str, hint: str) -> str:
    """The id of the one key that is meant."""
    if any(key["id"] == text for key in keys):
        return text
    valid = [key for key in keys if key["revoked_ms"] is None]
    found = [key["id"] for key in valid if key["label"] == text] or [
        key["id"] for key in valid if len(text) >= 4 and key["id"].startswith(text)
    ]
    return _only(found, "key", text, hint)


async def find_height(node: NodeSession, text: str) -> int:
    """A block's height, or the height of the block whose hash begins so."""
    if text.isascii() and text.isdecimal() and len(text) < 16:
        return int(text)
    _check(text, "a height or the beginning of a block's hash", "CHN-001")
    found = {
        row["hash"]: row["height"] async for row in _newest(node, "chain.listBlocks") if row["hash"].startswith(text)
    }
    return int(found[_only(list(found), "block", text, "`holdfast chain list --wide` shows hashes")])


async def find_reservation(node: NodeSession, text: str) -> str:
    """A reservation's id by the beginning of it."""
    if WHOLE_ID.fullmatch(text):
        return text
    _check(text, "the beginning of a reservation's id", "ESC-001")
    found = [row["id"] async for row in _newest(node, "account.listReservations") if row["id"].startswith(text)]
    return _only(found, "reservation", text, "`holdfast account reservations` shows them")


async def _newest(node: NodeSession, method: str) -> AsyncIterator[dict[str, Any]]:
    after = 0
    for _ in range(PAGES_MAX):
        page = await node.call(method, newest_first=True, limit=PAGE, after=after)
        for row in page["rows"]:
            yield row
        if page["next_after"] is None:
            return
        after = page["next_after"]


def _check(text: str, what: str, rule: str) -> None:
    if not _BEGINNING.fullmatch(text):
        hint = "at least 4 hexadecimal digits"
        refuse(Refused(rule, f"{text!r:.80} is not {what}", hint, "InvalidParams"))


def _only(found: list[str], what: str, text: str, hint: str) -> str:
    if not found:
        refuse(Refused("RPC-001", f"no {what} {text!r:.80}", hint, "NotFound"))
    if len(found) > 1:
        named = ", ".join(found[:NAMED_MAX]) + (" …" if len(found) > NAMED_MAX else "")
        refuse(Refused("RPC-001", f"{text!r:.80} means {len(found)} {what}s", f"type more: {named}", "Ambiguous"))
    return found[0]
