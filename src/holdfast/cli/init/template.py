"""The settings file that `holdfast init` writes: the chosen settings, and the defaults that are worth changing.

A line that begins with `#name = ` is a default, taken from the code that uses it. Without the `#` it means the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

from holdfast.api.grpc.settings import GrpcSettings
from holdfast.api.http.settings import HttpSettings
from holdfast.config import Config, Store
from holdfast.core.base.values import Network
from holdfast.core.policy import Policy

TLS_FILES: Final = {"certificate": "keys/server.pem", "key": "keys/server.key"}


class InitOptions(NamedTuple):
    """What the user chose for the new node."""

    data: Path
    network: Network
    chain_id: int
    store: Store
    http_port: int
    grpc_port: int
    tls: bool


class SettingLine(NamedTuple):
    """One setting and its comment."""

    name: str
    comment: str = ""


class Section(NamedTuple):
    """A table of the file."""

    name: str
    comment: tuple[str, ...]
    settings: tuple[SettingLine, ...]


_LISTENER: Final = (
    SettingLine("enabled"),
    SettingLine("host", "0.0.0.0 accepts other machines; that requires a certificate"),
    SettingLine("port"),
    SettingLine("certificate", "PEM, with its key"),
    SettingLine("key"),
)
_MTLS: Final = "client_ca = FILE requires clients to present a certificate that it has signed."

SECTIONS: Final = (
    Section(
        "",
        (),
        (
            SettingLine("data", "the node's files; readable by its user alone"),
            SettingLine("network", "development: money can be minted, blocks rolled back; or production"),
            SettingLine("chain_id", "cannot be changed once blocks are sealed"),
            SettingLine("store", "sqlite: files in the data folder; postgres: a server"),
            SettingLine("node", "this node's name in the journal"),
            SettingLine("standby", "follow another node on the same store, and take over when it fails"),
        ),
    ),
    Section(
        "log",
        ("Logging to standard error.",),
        (SettingLine("level", "debug, info, warning, error"), SettingLine("format", "text or json")),
    ),
    Section(
        "http",
        ("JSON-RPC at /rpc and /ws, events at /events, /metrics, /healthz, /readyz.", _MTLS),
        (
            *_LISTENER,
            SettingLine("public_reads", "blocks and jobs can be read without a key"),
            SettingLine("public_events", "events can be followed without a key"),
            SettingLine("public_metrics"),
            SettingLine("body_bytes_max"),
            SettingLine("connections_max"),
            SettingLine("key_per_s", "requests a second with one key"),
            SettingLine("address_per_s", "requests a second from one address without a key"),
        ),
    ),
    Section(
        "grpc",
        ("gRPC, for agents and other programs.", _MTLS),
        (
            *_LISTENER,
            SettingLine("message_bytes_max"),
            SettingLine("connections_max"),
            SettingLine("legacy_evidence", "evidence of v0.1 senders, which have no keys: off, mtls or open"),
        ),
    ),
    Section(
        "verifiers",
        ("Proofs that take computing are checked in processes with limits.",),
        (
            SettingLine("processes"),
            SettingLine("seconds_max", "one that takes longer is killed"),
            SettingLine("memory_mib_max"),
            SettingLine("recompute_ppm", "parts per million of results that are computed again"),
            SettingLine("traps_right_ppm", "parts per million of a circuit's traps that must be right"),
        ),
    ),
    Section(
        "postgres",
        (
            'For store = "postgres". The DSN is a secret: set HOLDFAST_POSTGRES__DSN in the environment,',
            "or pass a file that contains nothing else: dsn_file = FILE",
        ),
        (
            SettingLine("schema", "several networks can share a database"),
            SettingLine("allow_unsafe", "accept a server that can lose confirmed work"),
        ),
    ),
    Section(
        "policy.chain",
        ("When blocks are sealed, and when they are final.",),
        (
            SettingLine("block_ms", "while transactions wait"),
            SettingLine("idle_block_ms", "while none wait"),
            SettingLine("finality_depth", "how many blocks can be rolled back"),
        ),
    ),
    Section(
        "policy.admission",
        ("What the queue admits.",),
        (
            SettingLine("payload_bytes_max"),
            SettingLine("queue_depth_max"),
            SettingLine("in_flight_per_requester_max"),
            SettingLine("back_pressure_ppm", "from this depth on, requesters may have fewer jobs"),
            SettingLine("idempotency_ms", "how long a retry is recognised"),
        ),
    ),
    Section(
        "policy.ttl",
        ("When a job that no provider finishes expires.",),
        (SettingLine("ai_ms"), SettingLine("quantum_ms")),
    ),
    Section(
        "policy.match",
        ("Who gets which job.",),
        (
            SettingLine(
                "order",
                "shuffle: the first that fits; spread: the least loaded; scored: the highest stake times health",
            ),
            SettingLine("interleave_every", "every n-th lease goes to the oldest job; 0: never"),
            SettingLine("requester_window_ms", "in a window of this length a requester is assigned"),
            SettingLine("requester_window_jobs_max", "at most this many jobs; both 0: no limit"),
        ),
    ),
    Section(
        "policy.provider",
        ("What providers put at stake, and what they lose.",),
        (
            SettingLine("stake_ai_min"),
            SettingLine("stake_quantum_min"),
            SettingLine("heartbeat_ms", "how often a heartbeat is expected"),
            SettingLine("heartbeat_grace_ms", "how late a heartbeat may be"),
            SettingLine("offence_window_ms", "another invalid proof within this time is a major offence"),
            SettingLine("unstake_lock_blocks", "unstaked money is locked for this many blocks"),
            SettingLine("unstake_cooldown_ms", "and for this long"),
            SettingLine(
                "quorum_minority_decay_ppm", "how much health a provider in the minority loses, where n of m must agree"
            ),
            SettingLine("quorum_minority_slashes", "and whether it also loses a part of its stake"),
        ),
    ),
    Section(
        "policy.evidence",
        ("How long evidence is kept: retain_days = N prunes finished sessions after N days.",),
        (SettingLine("retain_days"), SettingLine("dead_letters_per_channel_max", "how many may wait for an operator")),
    ),
    Section(
        "policy.result",
        ("Where results' bytes are stored, and for how long.",),
        (
            SettingLine(
                "max_inline_bytes", "results up to this size are also in the store; larger ones get a DA commitment"
            ),
            SettingLine("retain_hot_blocks", "in the store"),
            SettingLine("retain_warm_days", "on the disk, at least"),
            SettingLine("retain_cold_days", "the record"),
            SettingLine("may_lose_unarchived", "also delete from the disk what is not in an archive"),
            SettingLine("gc_interval_ms", "how often retention runs"),
            SettingLine("orphan_grace_hours", "how long a file that nothing needs stays on the disk"),
        ),
    ),
    Section(
        "policy.engine",
        ("How the journal is written.",),
        (
            SettingLine("snapshot_every_events", "how often a snapshot is written, for fast starts"),
            SettingLine(
                "tables_lag_events_soft", "events that the tables may be behind before they hold new jobs back"
            ),
            SettingLine(
                "tables_lag_events_max", "events that they may be behind before they hold new leases back, too"
            ),
            SettingLine("batch_events_max"),
        ),
    ),
)

HEADER: Final = """\
# Settings of a Holdfast node. The environment overrides this file (HOLDFAST_HTTP__PORT=8451), options override both.
# A line that begins with # and a name is a default: remove the # to change it. docs/operate.md explains
# more. Every fault in here is reported at the start, with the name of the setting.
"""


def render_settings(options: InitOptions) -> str:
    """The whole file."""
    defaults, chosen = _defaults(options.network), _chosen(options)
    return HEADER + "".join("\n".join(["", *_section(each, defaults, chosen), ""]) for each in SECTIONS)


def _section(section: Section, defaults: Mapping[str, object], chosen: Mapping[str, object]) -> Iterator[str]:
    yield from (f"# {line}" for line in section.comment)
    if section.name:
        yield f"[{section.name}]"
    for setting in section.settings:
        path = f"{section.name}.{setting.name}".removeprefix(".")
        if path in chosen:
            yield _line("", setting, chosen[path])
        elif defaults[path] is not None:
            yield _line("#", setting, defaults[path])


def _line(prefix: str, setting: SettingLine, value: object) -> str:
    line = f"{prefix}{setting.name} = {_toml(value)}"
    return f"{line:<40}  # {setting.comment}" if setting.comment else line


def _toml(value: object) -> str:
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)


def _chosen(options: InitOptions) -> dict[str, object]:
    chosen: dict[str, object] = {
        "data": options.data,
        "network": options.network,
        "chain_id": options.chain_id,
        "store": options.store,
        "http.enabled": True,
        "http.port": options.http_port,
        "grpc.enabled": True,
        "grpc.port": options.grpc_port,
    }
    files = {name: options.data / file for name, file in TLS_FILES.items()} if options.tls else {}
    return chosen | {f"{api}.{name}": file for api in ("http", "grpc") for name, file in files.items()}


def _defaults(network: Network) -> dict[str, object]:
    """The default of every setting, read from the code that uses it."""
    roots = {
        "": Config(),
        "log": Config().log,
        "http": HttpSettings(),
        "grpc": GrpcSettings(),
        "verifiers": Config().verifiers,
        "postgres": Config().postgres,
        "policy": Policy.for_network(network),
    }
    defaults: dict[str, object] = {}
    for section in SECTIONS:
        root, _, rest = section.name.partition(".")
        for setting in section.settings:
            path = f"{section.name}.{setting.name}".removeprefix(".")
            defaults[path] = (
                _EXTRA_DEFAULTS[setting.name]
                if setting.name in _EXTRA_DEFAULTS
                else attrgetter(f"{rest}.{setting.name}".removeprefix("."))(roots[root])
            )
    return defaults


_EXTRA_DEFAULTS: Final = {"enabled": False, "network": Network.DEVELOPMENT, "chain_id": Policy().chain_id}
"""Defaults of settings that are not fields of the settings records."""
