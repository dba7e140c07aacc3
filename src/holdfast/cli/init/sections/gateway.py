"""Settings of a node's archive, and of the gateway that may be one."""

from __future__ import annotations

from typing import Final

from holdfast.cli.init.sections.listeners import ALLOW_PLAIN, CERTIFICATE, CLIENT_CA, HOST, KEY
from holdfast.cli.init.sections.setting_line import Section, SettingLine

ARCHIVING: Final = (
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
            SettingLine("token_file", "the agent's key, in a file that holds nothing else", '"FILE"'),
            SettingLine("upload_mode", "signed: we sign items; raw: load-s3-agent does"),
            SettingLine("bucket", "load-s3-agent: private uploads into this bucket"),
            SettingLine("timeout_ms", "of one request to the archive"),
            SettingLine("queue_max", "heights lined up for upload at a time; the others wait in the journal"),
            SettingLine("fetch_bytes_per_hour", "what readers may make the node fetch back; 0: no limit"),
            SettingLine("peers", "followers that may have what the archive lost, separated by blanks"),
            SettingLine("peers_token_file", "the token of these followers, in a file of its own", '"FILE"'),
            SettingLine("kzg_processes", "0: one less than there are processors, at least 1"),
        ),
    ),
    Section(
        "gateway",
        ("The gateway, as the archive of this node or alone (`holdfast gateway`): docs/how-to/gateway.md.",),
        (
            *(HOST, SettingLine("port", "on 127.0.0.1"), CERTIFICATE, KEY, CLIENT_CA, ALLOW_PLAIN),
            SettingLine("url", "where clients reach it, for texts that name an address"),
            SettingLine("folder", "keys, index, unfinished uploads, items; by default DATA/gateway", '"FOLDER"'),
            SettingLine("objects", "where items are stored: empty is a folder, else s3://bucket/folder"),
            SettingLine("endpoint", "the address of an S3-compatible server"),
            SettingLine("index", "sqlite, or postgres: the server of postgres.dsn"),
            SettingLine("public_metrics", "/metrics can be read without a key"),
            SettingLine("object_bytes_max", "of one item"),
            SettingLine("uploads_max", "uploads that may run at once"),
            SettingLine("uploads_open_max", "resumable uploads that one key may have open"),
            SettingLine("upload_open_ms", "a resumable upload without progress is removed after this time"),
            SettingLine("memory_bytes", "a larger upload is spooled to disk"),
            SettingLine("body_ms", "how long a whole upload may take"),
            SettingLine("stall_ms", "how long it may bring nothing"),
            SettingLine("connections_max", "of all clients"),
            SettingLine("key_per_s", "requests a second with one key"),
            SettingLine("key_burst", "after a burst of this many"),
            SettingLine("address_per_s", "requests a second from one address without a key"),
            SettingLine("address_burst", "after a burst of this many"),
            SettingLine("quota_bytes", "what one key may store, unless it has a quota of its own; 0: no limit"),
            SettingLine("quota_items", "the same in items"),
            SettingLine("query_ms", "a query that takes longer is refused"),
            SettingLine("scrub_hours", "in how many hours everything stored is read again; 0: never"),
            SettingLine("drain_ms", "how long running requests may take at a stop"),
        ),
    ),
)
