"""One look at a network as lines of text: the verdict first, then what it rests on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from holdfast.cli.models import format_wait
from holdfast.cli.terminal.tables import format_time

WORST: Final = 5
RATES: Final = (("admitted", "admitted"), ("given", "leased"), ("COMPLETED", "completed"), ("lost", "lost"))


class Glance(msgspec.Struct, frozen=True):
    """What the node answered at one moment: its overview, and what its queue has counted."""

    overview: dict[str, Any]
    activity: dict[str, Any]

    @property
    def now_ms(self) -> int:
        return int(self.overview["now_ms"])

    def count(self, name: str) -> int:
        return sum(self.activity["counts"].get(name, {}).values())

    def since(self, ms: int | None) -> str:
        """How long ago that was."""
        return "-" if ms is None else format_span(max(0, self.now_ms - ms))


def lines_of(look: Glance, before: Glance | None) -> Iterator[str]:
    """The whole picture."""
    overview, queue, chain = look.overview, look.overview["queue"], look.overview["chain"]
    yield f"{overview['verdict']}  {format_time(look.now_ms)}"
    for alert in overview["alerts"]:
        yield f"  ▲ {alert['text']} ({alert['remedy']})"
    node = overview["node"]
    block = f"block {chain['head']}, {look.since(chain['head_ms'])} old, final {chain['finalized']}"
    yield f"{node['network']} {node['chain_id']}, {node['role']}, {node['phase']}  {block}"
    yield f"leases {queue['leases']}  depth {queue['depth']}  retrying {queue['retrying']}"
    for kind, wait in look.activity["waits"].items():
        oldest, p99 = look.since(queue["oldest_ms"].get(kind)), format_wait(wait["wait_p99_ms"])
        yield f"  {kind:<8} waiting {queue['waiting'].get(kind, 0):<8} oldest {oldest:<8} p99 wait {p99}"
    yield "rates    " + "  ".join(f"{shown} {_rate(look, before, name)}" for name, shown in RATES)
    if failures := look.activity["counts"].get("lost"):
        worst = sorted(failures.items(), key=lambda pair: (-pair[1], pair[0]))
        yield "failures " + "  ".join(f"{code or '?'} {count}" for code, count in worst)
    yield "providers " + "  ".join(
        f"{status} {count}" for status, count in overview["fleet"]["by_status"].items() if count
    )
    for provider in overview["providers"][:WORST]:
        yield _provider(provider)


def _provider(provider: dict[str, Any]) -> str:
    health, slots = f"{provider['health_ppm'] // 10_000} %", f"{provider['leases']}/{provider['slots']}"
    who = f"{provider['name'][:16]:<16} {provider['id'][:12]}"
    return f"  {who}  {health:<6} leases {slots:<8} {provider['why_not'] or 'ready'}"


def _rate(look: Glance, before: Glance | None, name: str) -> str:
    """A second, between two looks; at the first look all that was counted since the node started."""
    if before is None or look.now_ms <= before.now_ms:
        return f"{look.count(name)}"
    return f"{(look.count(name) - before.count(name)) * 1000 / (look.now_ms - before.now_ms):.1f}/s"


def format_span(ms: int) -> str:
    return f"{ms} ms" if ms < 1_000 else f"{ms / 1000:.1f} s" if ms < 60_000 else f"{ms // 60_000} min"
