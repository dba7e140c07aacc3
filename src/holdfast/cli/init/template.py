"""The settings file that `holdfast init` writes: what is set, and beside it every default one may want to change.

A line that begins with `#name = ` is a default, taken from the code that uses it: without its `#` it says the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

from holdfast.config import Config, Store
from holdfast.core.policy import Policy
from holdfast.core.values import Network
from holdfast.doors.grpc.settings import GrpcSettings
from holdfast.doors.http.settings import HttpSettings

TLS_FILES: Final = {"certificate": "keys/server.pem", "key": "keys/server.key"}


class Wanted(NamedTuple):
    """What somebody decided when they made the node."""

    data: Path
    network: Network
    chain_id: int
    store: Store
    http_port: int
    grpc_port: int
    tls: bool


class Leaf(NamedTuple):
    """One setting and what it means."""

    name: str
    says: str = ""


class Section(NamedTuple):
    """A table of the file."""

    name: str
    says: tuple[str, ...]
    leaves: tuple[Leaf, ...]


_DOOR: Final = (
    Leaf("enabled"),
    Leaf("host", "0.0.0.0 lets other machines in; that needs a certificate"),
    Leaf("port"),
    Leaf("certificate", "PEM, with its key"),
    Leaf("key"),
)
_MTLS: Final = "client_ca = FILE lets nobody in without a certificate that it has signed."

SECTIONS: Final = (
    Section(
        "",
        (),
        (
            Leaf("data", "where the node keeps everything; for its user alone"),
            Leaf("network", "development: money can be minted, blocks can be taken back; or production"),
            Leaf("chain_id", "never changed once blocks are sealed"),
            Leaf("store", "sqlite: files in the data folder; postgres: a server"),
            Leaf("node", "this node's name in the journal"),
            Leaf("standby", "follow another node on the same store, and take over when it dies"),
        ),
    ),
    Section(
        "log",
        ("What goes to standard error.",),
        (Leaf("level", "debug, info, warning, error"), Leaf("format", "text or json")),
    ),
    Section(
        "http",
        ("JSON-RPC at /rpc and /ws, events at /events, /metrics, /healthz, /readyz.", _MTLS),
        (
            *_DOOR,
            Leaf("public_reads", "blocks and jobs can be read without a key"),
            Leaf("public_events", "events can be followed without a key"),
            Leaf("public_metrics"),
            Leaf("body_bytes_max"),
            Leaf("connections_max"),
            Leaf("key_per_s", "requests a second with one key"),
            Leaf("address_per_s", "and from one address without a key"),
        ),
    ),
    Section(
        "grpc",
        ("The same network over gRPC.", _MTLS),
        (
            *_DOOR,
            Leaf("message_bytes_max"),
            Leaf("connections_max"),
            Leaf("legacy_evidence", "evidence of v0.1 senders, which have no keys: off, mtls or open"),
        ),
    ),
    Section(
        "verifiers",
        ("How proofs are looked at that take computing: each in a process with limits.",),
        (
            Leaf("processes"),
            Leaf("seconds_max", "one that takes longer is killed"),
            Leaf("memory_mib_max"),
            Leaf("recompute_ppm", "so many of a million results are computed again"),
            Leaf("traps_right_ppm", "this share of a circuit's traps must be right"),
        ),
    ),
    Section(
        "postgres",
        (
            'For store = "postgres". The DSN is a secret: set HOLDFAST_POSTGRES__DSN in the environment,',
            "or name a file that holds nothing else: dsn_file = FILE",
        ),
        (
            Leaf("schema", "several networks share a database"),
            Leaf("allow_unsafe", "accept a server that can lose confirmed work"),
        ),
    ),
    Section(
        "policy.chain",
        ("When blocks are sealed, and when they are final.",),
        (
            Leaf("block_ms", "while something waits"),
            Leaf("idle_block_ms", "while nothing does"),
            Leaf("finality_depth", "so many blocks can be taken back"),
        ),
    ),
    Section(
        "policy.admission",
        ("What the queue takes in.",),
        (
            Leaf("payload_bytes_max"),
            Leaf("queue_depth_max"),
            Leaf("in_flight_per_requester_max"),
            Leaf("back_pressure_ppm", "from this fill on, ever fewer jobs per requester"),
            Leaf("idempotency_ms", "how long a retry is recognised"),
        ),
    ),
    Section("policy.ttl", ("When a job that nobody finishes ends by itself.",), (Leaf("ai_ms"), Leaf("quantum_ms"))),
    Section(
        "policy.match",
        ("Who gets which job.",),
        (
            Leaf("order", "shuffle: the first who fits; spread: the emptiest; scored: the highest stake times health"),
            Leaf("interleave_every", "every so many leases one goes to the oldest job; 0: never"),
            Leaf("requester_window_ms", "in such a window a requester is given"),
            Leaf("requester_window_jobs_max", "so many jobs at most; both 0: as many as there are"),
        ),
    ),
    Section(
        "policy.provider",
        ("What providers put at stake, and what they lose.",),
        (
            Leaf("stake_ai_min"),
            Leaf("stake_quantum_min"),
            Leaf("heartbeat_ms", "how often one is expected"),
            Leaf("heartbeat_grace_ms", "so late, it was missed"),
            Leaf("offence_window_ms", "another invalid proof within it is a major offence"),
            Leaf("unstake_lock_blocks", "stake comes back after so many blocks"),
            Leaf("unstake_cooldown_ms", "and so long"),
            Leaf("quorum_minority_decay_ppm", "what another answer costs in health, where n of m agree"),
            Leaf("quorum_minority_slashes", "and whether it costs a part of the stake, too"),
        ),
    ),
    Section(
        "policy.evidence",
        ("What is kept of evidence: retain_days = N lets go of finished sessions after so many days.",),
        (Leaf("retain_days"), Leaf("dead_letters_per_channel_max", "so many may wait for you")),
    ),
    Section(
        "policy.result",
        ("Where results' bytes rest, and for how long.",),
        (
            Leaf("max_inline_bytes", "so many are kept in the store, too; larger ones are pinned"),
            Leaf("retain_hot_blocks", "in the store"),
            Leaf("retain_warm_days", "on the disk, at least"),
            Leaf("retain_cold_days", "the record"),
            Leaf("may_lose_unarchived", "delete from the disk what no archive has"),
            Leaf("collect_interval_ms", "how often it is looked at what can go"),
            Leaf("stray_hours", "so long a file may lie on the disk that no result and no completion needs"),
        ),
    ),
    Section(
        "policy.engine",
        ("How the journal is kept.",),
        (Leaf("snapshot_every_events", "a snapshot, for fast starts, after so many"), Leaf("batch_events_max")),
    ),
)

HEAD: Final = """\
# Settings of a Holdfast node. The environment is above this file (HOLDFAST_HTTP__PORT=8451), flags are above both.
# A line that begins with # and a name is a default: take the # away to change it. docs/operate.md has
# more. Whatever is wrong here is said at the start, with the name of the setting.
"""


def text_of(wanted: Wanted) -> str:
    """The whole file."""
    defaults, chosen = _defaults(wanted.network), _chosen(wanted)
    return HEAD + "".join("\n".join(["", *_section(each, defaults, chosen), ""]) for each in SECTIONS)


def _section(section: Section, defaults: Mapping[str, object], chosen: Mapping[str, object]) -> Iterator[str]:
    yield from (f"# {line}" for line in section.says)
    if section.name:
        yield f"[{section.name}]"
    for leaf in section.leaves:
        path = f"{section.name}.{leaf.name}".removeprefix(".")
        if path in chosen:
            yield _line("", leaf, chosen[path])
        elif defaults[path] is not None:
            yield _line("#", leaf, defaults[path])


def _line(mark: str, leaf: Leaf, value: object) -> str:
    line = f"{mark}{leaf.name} = {_toml(value)}"
    return f"{line:<40}  # {leaf.says}" if leaf.says else line


def _toml(value: object) -> str:
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)


def _chosen(wanted: Wanted) -> dict[str, object]:
    chosen: dict[str, object] = {
        "data": wanted.data,
        "network": wanted.network,
        "chain_id": wanted.chain_id,
        "store": wanted.store,
        "http.enabled": True,
        "http.port": wanted.http_port,
        "grpc.enabled": True,
        "grpc.port": wanted.grpc_port,
    }
    files = {name: wanted.data / file for name, file in TLS_FILES.items()} if wanted.tls else {}
    return chosen | {f"{door}.{name}": file for door in ("http", "grpc") for name, file in files.items()}


def _defaults(network: Network) -> dict[str, object]:
    """What each setting is where nobody sets it, asked of the code that has it."""
    roots = {
        "": Config(),
        "log": Config().log,
        "http": HttpSettings(),
        "grpc": GrpcSettings(),
        "verifiers": Config().verifiers,
        "postgres": Config().postgres,
        "policy": Policy.for_network(network),
    }
    found: dict[str, object] = {}
    for section in SECTIONS:
        root, _, rest = section.name.partition(".")
        for leaf in section.leaves:
            path = f"{section.name}.{leaf.name}".removeprefix(".")
            found[path] = (
                _KNOWN[leaf.name]
                if leaf.name in _KNOWN
                else attrgetter(f"{rest}.{leaf.name}".removeprefix("."))(roots[root])
            )
    return found


_KNOWN: Final = {"enabled": False, "network": Network.DEVELOPMENT, "chain_id": Policy().chain_id}
"""Not a field of the settings themselves."""
