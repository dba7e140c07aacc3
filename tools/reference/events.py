"""Public events: their names, their fields, and who is shown them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tools.reference.markdown import code, head, table

from holdfast.api.derived_events import DERIVED
from holdfast.api.public_events import (
    ACCOUNT_FIELDS,
    ALIASES,
    BLOCK_EVENTS,
    CHAIN_FIELDS,
    HIDDEN_FIELDS,
    INTERNAL_EVENTS,
    JOB_FIELD,
    NAMES_BY_STATUS,
    OPEN_EVENTS,
    PUBLIC_FIELDS,
    public_name,
)
from holdfast.core import state_machine
from holdfast.core.base.event import Event

ABOUT: Final = """\
`holdfast events`, `GET /events` and `events.subscribe` show these; `--type` and `types` choose some.
Numbers have no gaps: keep the last one and continue after it. Operators and auditors see all events, an
account what names it and what happens to its jobs. *Everybody* means without a key where
`http.public_events` is true; *in part* ids, kind, state and heights. Of a public job everybody sees all but
what replicas could copy."""


def page() -> str:
    rows = sorted(row for kind in (*state_machine.EVENTS, *DERIVED) for row in _rows(kind))
    return "\n".join([head("Events", ABOUT), table(("event", "meaning", "fields", "shown to"), rows)])


def _rows(kind: type[Event]) -> Iterator[tuple[str, str, str, str]]:
    names = [public_name(kind), *NAMES_BY_STATUS.get(kind, {}).values(), *([ALIASES[kind]] if kind in ALIASES else [])]
    about = " ".join((kind.__doc__ or "").split("\n\n", maxsplit=1)[0].split())
    for name in names:
        renamed = PUBLIC_FIELDS.get(name, {})
        fields = [renamed.get(field, field) for field in kind.__struct_fields__ if field not in HIDDEN_FIELDS]
        yield code(name), about, ", ".join(code(field) for field in fields), _shown_to(kind)


def _shown_to(kind: type[Event]) -> str:
    if kind in BLOCK_EVENTS:
        return "every subscriber"
    if kind in INTERNAL_EVENTS:
        return "operators, auditors"
    if kind in OPEN_EVENTS:
        return "everybody"
    if kind in CHAIN_FIELDS:
        return "its account; everybody in part"
    is_of_account = kind in JOB_FIELD or any(name in kind.__struct_fields__ for name in ACCOUNT_FIELDS)
    return "its account" if is_of_account else "operators, auditors"
