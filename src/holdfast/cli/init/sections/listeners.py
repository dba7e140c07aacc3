"""Settings of the network APIs: HTTP and gRPC, each one listening address and its limits."""

from __future__ import annotations

from typing import Final

from holdfast.cli.init.sections.setting_line import Section, SettingLine

CLIENT_CA: Final = SettingLine("client_ca", "clients must show a certificate that this CA has signed", '"FILE"')
CERTIFICATE: Final = SettingLine("certificate", "PEM, with its key", '"FILE"')
KEY: Final = SettingLine("key", "of the certificate", '"FILE"')
ALLOW_PLAIN: Final = SettingLine("allow_plain", "no TLS, though others reach it: only behind a proxy that adds it")
HOST: Final = SettingLine("host", "0.0.0.0 accepts other machines; that requires a certificate")
PORT: Final = SettingLine("port", "0: a free one")
_TLS: Final = (CERTIFICATE, KEY, CLIENT_CA, ALLOW_PLAIN)

LISTENERS: Final = (
    Section(
        "http",
        ("JSON-RPC at /rpc and /ws, events at /events, /metrics, /healthz, /readyz.",),
        (
            *(SettingLine("enabled", "a node opens no port by itself"), HOST, PORT, *_TLS),
            SettingLine("public_reads", "blocks and jobs can be read without a key"),
            SettingLine("public_events", "events can be followed without a key"),
            SettingLine("public_metrics", "/metrics can be read without a key"),
            SettingLine("origins", "pages of these origins may open a WebSocket; separated by blanks"),
            SettingLine("cors_origins", "web pages that may call with a token of their own"),
            SettingLine("trusted_proxies", "whose X-Forwarded-For is believed"),
            SettingLine("key_per_s", "requests a second with one key"),
            SettingLine("key_burst", "after a burst of this many"),
            SettingLine("address_per_s", "requests a second from one address without a key"),
            SettingLine("address_burst", "after a burst of this many"),
            SettingLine("connections_max", "a quarter is reserved for clients with a key"),
            SettingLine("address_connections_max", "connections of one address without a key"),
            SettingLine("key_connections_max", "connections of one key"),
            SettingLine("body_bytes_max", "of one request"),
            SettingLine("anonymous_bytes_max", "of one request without a key"),
            SettingLine("head_bytes_max", "of a request line and its headers"),
            SettingLine("depth_max", "how deep a message may be nested"),
            SettingLine("batch_max", "requests in one batch"),
            SettingLine("values_max", "values and keys in one message"),
            SettingLine("in_flight_max", "messages of one WebSocket that wait for their answers"),
            SettingLine("subscribers_max", "subscriptions to events, of all clients"),
            SettingLine("subscriptions_max", "subscriptions of one WebSocket"),
            SettingLine("send_bytes_max", "what may wait to be read by one client"),
            SettingLine("slow_ms", "a client that reads nothing for this long is disconnected"),
            SettingLine("heartbeat_ms", "how often a silent event stream shows that it lives"),
            SettingLine("ping_ms", "how often a WebSocket is pinged"),
            SettingLine("head_ms", "how long a request's headers, or a TLS handshake, may take"),
            SettingLine("body_ms", "how long a request's body may take"),
            SettingLine("idle_ms", "how long a connection may wait for its next request"),
            SettingLine("ready_ms", "a node whose own query takes longer is not ready"),
            SettingLine("drain_ms", "how long running requests may take at a stop"),
        ),
    ),
    Section(
        "grpc",
        ("gRPC, for agents and other programs.",),
        (
            *(SettingLine("enabled", "agents need it"), HOST, PORT, *_TLS),
            SettingLine("front", "a process of its own accepts the connections"),
            SettingLine("legacy_evidence", "evidence of v0.1 senders, which have no keys: off, mtls or open"),
            SettingLine("message_bytes_max", "of one message"),
            SettingLine("connections_max", "at most half of the files that the node may open"),
            SettingLine("address_connections_max", "connections of one address without a key"),
            SettingLine("key_connections_max", "connections of one key; of all without a stake together"),
            SettingLine("streams_max", "calls that one connection may have open"),
            SettingLine("calls_max", "calls that all connections together may have open"),
            SettingLine("address_calls_max", "calls that one address may have open"),
            SettingLine("address_unproven_max", "streams of one address that did not answer their challenge yet"),
            SettingLine("address_per_s", "calls a second from one address"),
            SettingLine("address_burst", "after a burst of this many"),
            SettingLine("acts_per_s", "messages a second of one provider; more are read later"),
            SettingLine("acts_burst", "after a burst of this many"),
            SettingLine("evidence_kib_per_s", "evidence of one provider with a stake; above it, acks wait"),
            SettingLine("evidence_kib_burst", "after a burst of this much"),
            SettingLine("unstaked_kib_per_s", "the same without a stake"),
            SettingLine("unstaked_kib_burst", "after a burst of this much"),
            SettingLine("handshake_ms", "how long the handshake of a connection may take"),
            SettingLine("idle_ms", "a connection without a call is closed after this time"),
            SettingLine("keepalive_ms", "after this much silence a ping is sent"),
            SettingLine("keepalive_answer_ms", "how long its answer may take"),
            SettingLine("connection_age_ms", "at this age a client is asked to reconnect", "3600000"),
            SettingLine("drain_ms", "how long running calls may continue at a stop"),
        ),
    ),
)
