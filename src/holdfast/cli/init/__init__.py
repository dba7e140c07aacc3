"""`holdfast init`: create a node's folder, key and settings, once, overwriting nothing (SEC-001)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Final

import typer

from holdfast.adapters.keys.authority import LOCAL_NAMES, CertificateFiles, make_tls
from holdfast.adapters.keys.secret_file import exists, write_new
from holdfast.adapters.keys.signing import SigningKey
from holdfast.cli import make_app
from holdfast.cli.init.template import InitOptions, render_settings
from holdfast.cli.terminal.clock import now_ms
from holdfast.cli.terminal.key_files import KEYS_FOLDER, NODE_KEY_FILE
from holdfast.cli.terminal.options import Json
from holdfast.cli.terminal.reporting import refuse, report_errors
from holdfast.cli.terminal.tables import print_json
from holdfast.config import DEFAULT_FILE, Config, Store, why_not_own_gateway
from holdfast.core.base.errors import Refused, Unavailable
from holdfast.core.base.values import U64_MAX, Network
from holdfast.system.loopback import find_free_port

app = make_app()
DATA: Final = "holdfast-data"
PORT_MAX: Final = 65_535


@app.command(example="holdfast init my-node --tls node.example")
def init(
    folder: Annotated[Path | None, typer.Argument(metavar="DIR", help="Where. [default: here]")] = None,
    network: Annotated[
        Network, typer.Option(help="Only a development network can mint money and roll back blocks.")
    ] = Network.DEVELOPMENT,
    chain_id: Annotated[int, typer.Option(min=0, max=U64_MAX, help="The chain's id; it can never be changed.")] = 1337,
    store: Annotated[Store, typer.Option(help="Where journal and tables are stored.")] = Store.SQLITE,
    http: Annotated[int, typer.Option(metavar="PORT", min=1, max=PORT_MAX, help="JSON-RPC and events.")] = 8451,
    grpc: Annotated[int, typer.Option(metavar="PORT", min=1, max=PORT_MAX, help="gRPC.")] = 8452,
    tls: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Create a certificate for this host name or address; may be repeated."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Create what a node needs: its data folder, the key that signs its blocks, and a commented holdfast.toml.

    With --tls also a CA of your own and a certificate for the node. Nothing is ever overwritten.
    """
    parent = Path() if folder is None else folder.absolute()
    options = InitOptions(
        data=parent / DATA,
        network=network,
        chain_id=chain_id,
        store=store,
        http_port=http,
        grpc_port=grpc,
        tls=bool(tls),
        gateway_port=find_free_port({http, grpc}) if network is Network.DEVELOPMENT else None,
    )
    if refusal := _why_not(parent, options):
        refuse(refusal)
    with report_errors():
        key, tls_files = _create(parent, options, tuple(tls or ()))
    if as_json:
        print_json({"settings": str(parent / DEFAULT_FILE), "data": str(options.data), "public_key": key.public.hex()})
        return
    _print_summary(parent, options, key, tls_files)


def _why_not(parent: Path, options: InitOptions) -> Refused | None:
    """Everything is checked before anything is created."""
    if options.http_port == options.grpc_port:
        message = f"--http and --grpc: both are {options.http_port}"
        return Refused("SEC-001", message, "choose two ports", "InvalidParams")
    for path in (parent / DEFAULT_FILE, options.data / KEYS_FOLDER / NODE_KEY_FILE):
        if exists(path):
            return Refused("SEC-001", f"{path} already exists", "nothing is overwritten: choose another folder")
    if exists(options.data) and (not options.data.is_dir() or any(options.data.iterdir())):
        return Refused("SEC-001", f"{options.data} already exists and is not empty", "choose another folder")
    return None


def _create(parent: Path, options: InitOptions, names: tuple[str, ...]) -> tuple[SigningKey, CertificateFiles | None]:
    created = _make_folders(parent, options.data)
    keys = options.data / KEYS_FOLDER
    tls_files = make_tls(keys, now_ms(), _with_local(names)) if names else None
    if isinstance(tls_files, Refused):
        for path in reversed(created):  # a bad name is refused before anything is in them
            path.rmdir()
        refuse(tls_files)
    key = SigningKey.load_or_create(keys / NODE_KEY_FILE)
    if not write_new(parent / DEFAULT_FILE, render_settings(options).encode()):
        refuse(Refused("SEC-001", f"{parent / DEFAULT_FILE} already exists", "nothing is overwritten"))
    return key, tls_files


def _make_folders(parent: Path, data: Path) -> list[Path]:
    """Create missing folders from the top down and return them; only its owner may enter the data folder."""
    missing = [path for path in (*reversed(parent.absolute().parents), parent, data) if not path.exists()]
    try:
        for path in missing:
            path.mkdir(mode=0o700 if path == data else 0o777)
        data.chmod(0o700)
        (data / KEYS_FOLDER).mkdir(mode=0o700)
    except OSError as fault:
        message = f"{fault.filename}: {fault.strerror}"
        raise Unavailable("SEC-001", message, "choose a folder that can be written") from fault
    return [*missing, data / KEYS_FOLDER]


def _with_local(names: tuple[str, ...]) -> list[str]:
    """The certificate is also valid for connections from the same machine."""
    return list(dict.fromkeys((*names, *LOCAL_NAMES)))


def _print_summary(parent: Path, options: InitOptions, key: SigningKey, tls_files: CertificateFiles | None) -> None:
    key_file = options.data / KEYS_FOLDER / NODE_KEY_FILE
    print(f"created  {parent / DEFAULT_FILE}: the settings, each with a comment")
    print(f"created  {options.data}: the node's data, readable by you alone")
    print(f"created  {key_file}: signs this node's blocks; public key {key.public.hex()}")
    if tls_files is not None:
        print(f"created  {tls_files.certificate}: the node's certificate; clients trust {tls_files.ca_certificate}")
    print(f"archive  {_archive_line(options)}")
    print("\nnext:")
    if parent != Path():
        print(f"  cd {parent}")
    if options.store is Store.POSTGRES and not os.environ.get("HOLDFAST_POSTGRES__DSN"):
        print("  export HOLDFAST_POSTGRES__DSN=postgresql://user:password@host/database")
    print("  holdfast up                                # and in another terminal:")
    if options.network is Network.DEVELOPMENT:
        print("  holdfast account mint alice 1000000        # money, on a development network")
    print("  holdfast key create --account alice        # a token for alice, shown once")
    print("  holdfast doctor                            # is everything in order?")


def _archive_line(options: InitOptions) -> str:
    """Whether outputs are archived, and what must be done if not."""
    if options.gateway_port is None:
        return "none: outputs stay on this node's disk until [archive] in the settings names one"
    if missing := why_not_own_gateway(Config().gateway):
        return f"none for now: {missing.message}; {missing.hint}"
    return f"the node runs a gateway on 127.0.0.1:{options.gateway_port} and archives outputs there, offline"
