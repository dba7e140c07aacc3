"""`holdfast init`: the folder, the key and the settings of a node, made once and never overwritten (SEC-001)."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated, Final

import typer

from holdfast.adapters.keys.authority import LOCAL_NAMES, Pair, make_tls
from holdfast.adapters.keys.secretfile import exists, write_new
from holdfast.adapters.keys.signing import SigningKey
from holdfast.cli import Command, verb
from holdfast.cli.init.template import Wanted, text_of
from holdfast.cli.speak import refuse, told
from holdfast.config import FILE, Store
from holdfast.core.refusal import Refused, Unavailable
from holdfast.core.values import U64_MAX, Network

app = verb()
DATA: Final = "holdfast-data"
KEYS: Final = "keys"
NODE_KEY: Final = "node.pem"
PORT_MAX: Final = 65_535


@app.command(cls=Command)
def init(
    folder: Annotated[Path | None, typer.Argument(metavar="DIR", help="Where. [default: here]")] = None,
    network: Annotated[
        Network, typer.Option(help="Only a development network mints money and rolls back.")
    ] = Network.DEVELOPMENT,
    chain_id: Annotated[int, typer.Option(min=0, max=U64_MAX, help="A number for your chain, for ever.")] = 1337,
    store: Annotated[Store, typer.Option(help="Where journal and tables are kept.")] = Store.SQLITE,
    http: Annotated[int, typer.Option(metavar="PORT", min=1, max=PORT_MAX, help="JSON-RPC and events.")] = 8451,
    grpc: Annotated[int, typer.Option(metavar="PORT", min=1, max=PORT_MAX, help="gRPC.")] = 8452,
    tls: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Make a certificate for this host name or address; several are allowed."),
    ] = None,
) -> None:
    """Make what a node needs: its data folder, the key it signs blocks with, and a holdfast.toml that explains itself.

    With --tls also an authority of your own and a certificate for the node. Nothing is ever overwritten.
    """
    home = Path() if folder is None else folder.absolute()
    wanted = Wanted(home / DATA, network, chain_id, store, http, grpc, tls=bool(tls))
    if no := _why_not(home, wanted):
        refuse(no)
    with told():
        key, pair = _make(home, wanted, tuple(tls or ()))
    _say(home, wanted, key, pair)


def _why_not(home: Path, wanted: Wanted) -> Refused | None:
    """Everything is looked at before anything is made."""
    if wanted.http_port == wanted.grpc_port:
        return Refused(
            "SEC-001", f"--http and --grpc: both are {wanted.http_port}", "give each its own", "InvalidParams"
        )
    for path in (home / FILE, wanted.data / KEYS / NODE_KEY):
        if exists(path):
            return Refused("SEC-001", f"{path} is there already", "nothing is overwritten: choose another folder")
    if exists(wanted.data) and (not wanted.data.is_dir() or any(wanted.data.iterdir())):
        return Refused("SEC-001", f"{wanted.data} is there already and not empty", "choose another folder")
    return None


def _make(home: Path, wanted: Wanted, names: tuple[str, ...]) -> tuple[SigningKey, Pair | None]:
    made = _folders(home, wanted.data)
    keys = wanted.data / KEYS
    pair = make_tls(keys, time.time_ns() // 1_000_000, _with_local(names)) if names else None
    if isinstance(pair, Refused):
        for path in reversed(made):  # a bad name is refused before anything is in them
            path.rmdir()
        refuse(pair)
    key = SigningKey.load_or_create(keys / NODE_KEY)
    if not write_new(home / FILE, text_of(wanted).encode()):
        refuse(Refused("SEC-001", f"{home / FILE} is there already", "nothing is overwritten"))
    return key, pair


def _folders(home: Path, data: Path) -> list[Path]:
    """Made by us, from the top down; the data folder and what is in it for its user alone."""
    missing = [path for path in (*reversed(home.absolute().parents), home, data) if not path.exists()]
    try:
        for path in missing:
            path.mkdir(mode=0o700 if path == data else 0o777)
        data.chmod(0o700)
        (data / KEYS).mkdir(mode=0o700)
    except OSError as fault:
        says = f"{fault.filename}: {fault.strerror}"
        raise Unavailable("SEC-001", says, "choose a folder that can be written") from fault
    return [*missing, data / KEYS]


def _with_local(names: tuple[str, ...]) -> list[str]:
    """The machine itself reaches the node, too."""
    return list(dict.fromkeys((*names, *LOCAL_NAMES)))


def _say(home: Path, wanted: Wanted, key: SigningKey, pair: Pair | None) -> None:
    print(f"made  {home / FILE}: the settings, each with what it means")
    print(f"made  {wanted.data}: the node's data, for you alone")
    print(f"made  {wanted.data / KEYS / NODE_KEY}: signs this node's blocks; public key {key.public.hex()}")
    if pair is not None:
        print(f"made  {pair.certificate}: the node's certificate; clients trust {pair.authority}")
    print("\nnext:")
    if home != Path():
        print(f"  cd {home}")
    if wanted.store is Store.POSTGRES and not os.environ.get("HOLDFAST_POSTGRES__DSN"):
        print("  export HOLDFAST_POSTGRES__DSN=postgresql://user:password@host/database")
    print("  holdfast up                                # and in another terminal:")
    if wanted.network is Network.DEVELOPMENT:
        print("  holdfast account mint alice 1000000        # money, on a development network")
    print("  holdfast key new --account alice           # a token for alice, shown once")
    print("  holdfast doctor                            # is everything in order?")
