"""Settings of the node itself: its folder and log, ownership, verifiers, and the stores it uses."""

from __future__ import annotations

from typing import Final

from holdfast.cli.init.sections.setting_line import Section, SettingLine

NODE: Final = (
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
            SettingLine("asrun_folder", "only for RetroVue: as-run logs of its channels are written there", '"FOLDER"'),
            SettingLine("accept_clock", "true for one start: the clock is right, though it looks wrong"),
        ),
    ),
    Section(
        "log",
        ("Logging to standard error.",),
        (SettingLine("level", "debug, info, warning, error"), SettingLine("format", "text or json")),
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
            SettingLine("processes", "how many check at the same time"),
            SettingLine("seconds_max", "one that takes longer is killed"),
            SettingLine("memory_mib_max", "of one process, the interpreter included"),
            SettingLine("tries", "how often a proof is checked before its verifier counts as failed"),
            SettingLine("recompute_ppm", "parts per million of results that are computed again"),
            SettingLine("traps_right_ppm", "parts per million of a circuit's traps that must be right"),
        ),
    ),
)
STORES: Final = (
    Section(
        "postgres",
        (
            'For store = "postgres". The DSN is a secret: set HOLDFAST_POSTGRES__DSN in the environment,',
            "or pass a file that contains nothing else: dsn_file = FILE",
        ),
        (
            SettingLine("dsn", "a secret: HOLDFAST_POSTGRES__DSN in the environment, never here"),
            SettingLine("dsn_file", "a file that holds nothing but the DSN", '"FILE"'),
            SettingLine("schema", "several networks can share a database"),
            SettingLine("allow_unsafe", "accept a server that can lose confirmed work"),
            SettingLine("connect_timeout_ms", "how long a connection may take"),
            SettingLine("command_timeout_ms", "after this the outcome of a command counts as unknown"),
        ),
    ),
    Section(
        "objects",
        ("Outputs, blobs and journal segments where all nodes of a network find them; empty: in the data folder.",),
        (
            SettingLine("url", "s3://bucket/folder, or a folder that all nodes have mounted"),
            SettingLine("endpoint", "the address of an S3-compatible server"),
        ),
    ),
)
