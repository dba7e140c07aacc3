"""The settings file that `holdfast init` writes: the chosen settings, and the defaults that are worth changing.

A line that begins with `#name = ` is a default, taken from the code that uses it. Without the `#` it means the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

from holdfast.adapters.archive.settings import ProviderKind
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
    gateway_port: int | None = None
    """Of the gateway that the node runs as its archive; None where it has no archive."""


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
            SettingLine("scrub_days", "in how many days all outputs on the disk are read again; 0: never"),
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
            SettingLine("address_connections_max", "connections of one address without a key"),
            SettingLine("cors_origins", "web pages that may call with a token of their own"),
            SettingLine("trusted_proxies", "whose X-Forwarded-For is believed"),
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
            SettingLine("address_connections_max", "connections of one address without a key"),
            SettingLine("front", "a process of its own accepts the connections"),
            SettingLine("legacy_evidence", "evidence of v0.1 senders, which have no keys: off, mtls or open"),
        ),
    ),
    Section(
        "owner",
        ("Two nodes on one journal: when a standby replaces an owner that hangs. Same values on both.",),
        (
            SettingLine("heartbeat_ms", "how often the owner shows that it lives"),
            SettingLine("takeover_ms", "after so long without a heartbeat a standby takes over"),
            SettingLine("pause_ms", "an owner that stood still for longer acquires ownership again"),
            SettingLine("scrub_hours", "how often the whole journal is verified; 0: never"),
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
        "policy.job",
        ("Jobs that do not say otherwise.",),
        (SettingLine("default_visibility", "private or public: who may read a job"),),
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
            SettingLine("attestors_required_ai", "one of these must have attested a provider of AI; empty: any"),
            SettingLine("attestors_required_quantum", "and of QUANTUM"),
        ),
    ),
    Section(
        "policy.proof",
        ("The proofs that jobs may ask for, and the work that `recompute` computes again.",),
        (SettingLine("methods"), SettingLine("recomputers")),
    ),
    Section(
        "policy.evidence",
        ("How long evidence is kept: retain_days = N prunes finished sessions after N days.",),
        (
            SettingLine("retain_days"),
            SettingLine("dead_letters_per_channel_max", "how many may wait for an operator"),
            SettingLine("unstaked", "whose evidence is stored without a stake: open or invited"),
        ),
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
        "archive",
        ("Where the outputs of results are archived; without one they stay on this node's disk.",),
        (
            SettingLine(
                "provider",
                "gateway: the node runs one; none; file: a folder; s3: a bucket; load-s3-agent: over HTTP",
            ),
            SettingLine("url", "the folder (by default DATA/archived), s3://bucket/folder, or the agent's address"),
            SettingLine("endpoint", "the address of an S3-compatible server"),
            SettingLine("gateway_url", "where items are read back, if not from url"),
            SettingLine("timeout_ms"),
        ),
    ),
    Section(
        "gateway",
        ("The gateway, as the archive of this node or alone (`holdfast gateway`): docs/how-to/gateway.md.",),
        (
            SettingLine("port", "on 127.0.0.1"),
            SettingLine("objects", "where items are stored: empty is a folder, else s3://bucket/folder"),
            SettingLine("endpoint", "the address of an S3-compatible server"),
            SettingLine("scrub_hours", "in how many hours everything stored is read again; 0: never"),
        ),
    ),
    Section(
        "policy.archive",
        ("When outputs are archived, and when this node's copies of their blobs are deleted.",),
        (
            SettingLine("blob_wait_blocks", "how many blocks an output waits for others in its blob"),
            SettingLine("read_back", "before anything is deleted: always, sampled or never"),
            SettingLine("retain_blocks", "how many blocks an archived blob stays here, too"),
            SettingLine("bytes_per_day_max", "0: no limit"),
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
    Section(
        "policy.treasury",
        ("What one deposit or withdrawal of a treasurer may move.",),
        (SettingLine("deposit_max"), SettingLine("withdrawal_max")),
    ),
)

HEADER: Final = """\
# Settings of a Holdfast node. The environment overrides this file (HOLDFAST_HTTP__PORT=8451), options override both.
# A line that begins with # and a name is a default: remove the # to change it. docs/how-to/operator.md explains
# more. Every fault in here is reported at the start, with the name of the setting.
# The [policy] tables, network and chain_id are used by the first start alone, which journals them. Later changes of the
# policy are adopted by `holdfast policy apply FILE`, without a restart; network and chain_id never change.
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
    if options.gateway_port is not None:
        chosen |= {"archive.provider": ProviderKind.GATEWAY, "gateway.port": options.gateway_port}
    files = {name: options.data / file for name, file in TLS_FILES.items()} if options.tls else {}
    return chosen | {f"{api}.{name}": file for api in ("http", "grpc") for name, file in files.items()}


def _defaults(network: Network) -> dict[str, object]:
    """The default of every setting, read from the code that uses it."""
    roots = {
        "": Config(),
        "log": Config().log,
        "http": HttpSettings(),
        "grpc": GrpcSettings(),
        "owner": Config().owner,
        "verifiers": Config().verifiers,
        "archive": Config().archive,
        "gateway": Config().gateway,
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
