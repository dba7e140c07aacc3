"""The tags of a raw upload, as load-s3-agent gives them: its own first, then the sender's, trimmed and once each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from holdfast.core.base.errors import Refused
from holdfast.system.strict_json import NOT_JSON, decode_json
from holdfast.wire.ans104 import PORTABLE_TAG_BYTES, Tag, encode_tags, why_not_tags

AGENT_VERSION: Final = "0.7.0"
"""The version of load-s3-agent whose API this is. It is a tag of every raw upload: another one changes their ids."""
CUSTOM_MAX: Final = 1_024
"""The agent drops longer names and values."""
TAGS_FIELD_BYTES: Final = 1 << 20
_RESERVED: Final = frozenset({"storage-provider", "agent-version"})
_CONTENT_TYPE: Final = "content-type"


class CustomTag(msgspec.Struct, frozen=True):
    """A tag as a client sends it. Unknown members are ignored."""

    key: str
    value: str


def parse_tags(raw: bytes) -> list[CustomTag] | Refused:
    try:
        return decode_json(raw, list[CustomTag])
    except NOT_JSON:
        return Refused("ARC-004", "invalid tags payload, expected JSON array of objects with key/value")


def raw_item_tags(content_type: str, custom: Sequence[CustomTag]) -> list[Tag] | Refused:
    """The item's tags in order; Refused where no item can have them, or other programs could not verify it."""
    kept = _kept(custom)
    own_type = kept.get(_CONTENT_TYPE)
    tags = [] if own_type is not None else [("Content-Type", content_type)]
    tags += [("Storage-Provider", "Load-S3"), ("Agent-Version", f"agent@{AGENT_VERSION}")]
    tags += [pair for name, pair in kept.items() if name != _CONTENT_TYPE]
    if own_type is not None:
        tags.append(own_type)
    encoded = [(name.encode("utf-8"), value.encode("utf-8")) for name, value in tags]
    if (why_not := why_not_tags(encoded)) is not None:
        return why_not
    if (size := len(encode_tags(encoded))) > PORTABLE_TAG_BYTES:
        return Refused(
            "ARC-004", f"the tags take {size} bytes, at most {PORTABLE_TAG_BYTES}", "send fewer or shorter tags"
        )
    return encoded


def _kept(custom: Sequence[CustomTag]) -> dict[str, tuple[str, str]]:
    """By lower-case name; what is empty, too long, reserved or a repeat is dropped without a word."""
    kept: dict[str, tuple[str, str]] = {}
    for tag in custom:
        name, value = tag.key.strip(), tag.value.strip()
        is_sized = all(1 <= len(text.encode("utf-8")) <= CUSTOM_MAX for text in (name, value))
        if is_sized and name.lower() not in _RESERVED:
            kept.setdefault(name.lower(), (name, value))
    return kept
