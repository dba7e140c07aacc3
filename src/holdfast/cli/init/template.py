"""The settings file that `holdfast init` writes: every setting, as it was chosen or with its default.

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
from holdfast.cli.init.sections import SECTIONS, Section
from holdfast.config import SECRETS, Config, Store
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


HEADER: Final = """\
# Settings of a Holdfast node. The environment overrides this file (HOLDFAST_HTTP__PORT=8451), options override both.
# Every setting is in here. A line that begins with # and a name is a default: remove the # to change it. What begins
# with "# " is not set. docs/reference/settings.md has the limits. Every fault is reported at the start, by its name.
# The [policy] tables, network and chain_id are used by the first start alone, which journals them. Later changes of the
# policy are adopted by `holdfast policy apply FILE`, without a restart; network and chain_id never change.
"""


def render_settings(options: InitOptions) -> str:
    """The whole file."""
    defaults, chosen = setting_defaults(options.network), _chosen(options)
    return HEADER + "".join("\n".join(["", *_section(each, defaults, chosen), ""]) for each in SECTIONS)


def _section(section: Section, defaults: Mapping[str, object], chosen: Mapping[str, object]) -> Iterator[str]:
    yield from (f"# {line}" for line in section.comment)
    if section.name:
        yield f"[{section.name}]"
    for setting in section.settings:
        path = f"{section.name}.{setting.name}".removeprefix(".")
        if path in chosen:
            yield _line(f"{setting.name} = {_toml(chosen[path])}", setting.comment)
        elif defaults[path] is not None:
            yield _line(f"#{setting.name} = {_toml(defaults[path])}", setting.comment)
        elif path not in SECRETS:
            yield _line(f"# {setting.name} = {setting.example}", setting.comment)


def _line(line: str, comment: str) -> str:
    return f"{line:<40}  # {comment}" if comment else line


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


def setting_defaults(network: Network) -> dict[str, object]:
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
        "objects": Config().objects,
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


_EXTRA_DEFAULTS: Final = {
    **{"enabled": False, "network": Network.DEVELOPMENT, "chain_id": Policy().chain_id},
    **{"dsn": None, "dsn_file": None},
}
"""Defaults of settings that are not fields of the settings records."""
