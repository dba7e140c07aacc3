"""`holdfast init` makes what a node needs, says what it made, explains itself, and overwrites nothing."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import msgspec
import pytest
from tests.stories.forked_command import run_program

from holdfast.adapters.keys.certificate import TlsFiles, describe_file
from holdfast.adapters.keys.signing import SigningKey
from holdfast.cli.init.sections import SECTIONS
from holdfast.cli.init.template import InitOptions, render_settings
from holdfast.config import LEAVES, SECRETS, Config, Store, load
from holdfast.core.base.values import Network

pytestmark = pytest.mark.rule("SEC-001")
DEFAULT = re.compile(r"^#(?=[a-z_]+ = )", re.MULTILINE)
"""What makes a setting of the file a default."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def init(*args: str) -> tuple[int, str, str]:
    done = run_program("init", *args)
    return done.returncode, done.stdout, done.stderr


def everything(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file and folder, with its mode and what is in it."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in sorted(folder.rglob("*"))
    }


def loaded(file: Path) -> Config:
    found = load(file, {}, {})
    assert isinstance(found, Config), found
    return found


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_node_gets_a_folder_for_its_user_alone_a_key_and_settings_that_enable_its_apis() -> None:
    code, said, _ = init()
    assert code == 0
    data = Path("holdfast-data")
    assert (mode(data), mode(data / "keys"), mode(data / "keys/node.pem")) == (0o700, 0o700, 0o600)
    assert mode(Path("holdfast.toml")) == 0o600
    config = loaded(Path("holdfast.toml"))
    assert config.http is not None
    assert config.grpc is not None
    assert [(api.host, api.port) for api in (config.http, config.grpc)] == [("127.0.0.1", 8451), ("127.0.0.1", 8452)]
    assert (config.data, config.policy.network) == (data, Network.DEVELOPMENT)
    assert SigningKey.load(data / "keys/node.pem").public.hex() in said
    assert "holdfast up" in said
    assert (config.runs_gateway, config.archive.url) == (True, f"http://127.0.0.1:{config.gateway.port}")
    assert 20_000 <= config.gateway.port < 32_768
    assert f"a gateway on 127.0.0.1:{config.gateway.port}" in said


def test_a_production_node_has_no_archive_until_one_is_configured_and_says_so() -> None:
    code, said, _ = init("--network", "production")
    config = loaded(Path("holdfast.toml"))
    assert (code, config.runs_gateway, config.archive.provider.value) == (0, False, "none")
    assert "archive  none: outputs stay on this node's disk until [archive] in the settings names one" in said


def test_what_is_asked_for_is_in_the_file() -> None:
    asked = ("--network", "production", "--chain-id", "7", "--store", "postgres", "--http", "2001", "--grpc", "2002")
    assert init("node", *asked)[0] == 0
    config = loaded(Path("node/holdfast.toml"))
    assert (config.policy.network, config.policy.chain_id, config.store) == (Network.PRODUCTION, 7, Store.POSTGRES)
    assert config.http is not None
    assert config.grpc is not None
    assert (config.http.port, config.grpc.port) == (2001, 2002)
    assert config.data == Path("node/holdfast-data").absolute()  # found from wherever the file is named


def test_with_tls_an_authority_and_a_certificate_are_made_and_used_by_both_servers() -> None:
    code, said, _ = init("--tls", "node.example.org", "--tls", "10.0.0.7")
    assert code == 0
    config = loaded(Path("holdfast.toml"))
    for api in (config.http, config.grpc):
        assert api is not None
        assert api.certificate is not None
        assert api.key is not None
        TlsFiles(api.certificate, api.key).load()
        assert {"node.example.org", "10.0.0.7", "localhost", "127.0.0.1"} <= set(describe_file(api.certificate).names)
    assert mode(Path("holdfast-data/keys/server.key")) == mode(Path("holdfast-data/keys/ca.key")) == 0o600
    assert "ca.pem" in said


@pytest.mark.parametrize("network", list(Network))
@pytest.mark.parametrize("store", list(Store))
@pytest.mark.parametrize("tls", [False, True])
def test_every_default_that_the_file_names_is_the_real_one(network: Network, store: Store, tls: bool) -> None:
    text = render_settings(
        InitOptions(Path("d"), network, 9, store, 2001, 2002, tls, gateway_port=2003 if tls else None)
    )
    plain, spelt = Path("plain.toml"), Path("spelt.toml")
    plain.write_text(text, "utf-8")
    spelt.write_text(DEFAULT.sub("", text), "utf-8")
    assert len(DEFAULT.findall(text)) > 20
    assert loaded(plain) == loaded(spelt)


def test_every_line_that_names_a_setting_names_one_there_is() -> None:
    paths = [f"{section.name}.{leaf.name}".removeprefix(".") for section in SECTIONS for leaf in section.settings]
    assert [path for path in paths if path not in LEAVES] == []
    assert len(paths) == len(set(paths))


def test_every_setting_is_in_the_file_with_a_line_about_it() -> None:
    described = {f"{table.name}.{leaf.name}".removeprefix("."): leaf for table in SECTIONS for leaf in table.settings}
    assert set(LEAVES) - set(described) == set(), "describe them in cli/init/sections"
    assert [path for path, leaf in described.items() if not leaf.comment] == []
    text = render_settings(InitOptions(Path("d"), Network.PRODUCTION, 9, Store.SQLITE, 2001, 2002, tls=False))
    names = ["", *re.findall(r"^\[(.+)\]$", text, re.MULTILINE)]
    tables = dict(zip(names, re.split(r"^\[.+\]$", text, flags=re.MULTILINE), strict=True))
    for path in sorted(set(LEAVES) - SECRETS):
        table, _, name = path.rpartition(".")
        assert re.search(rf"^#? ?{name} = ", tables[table], re.MULTILINE), path


def test_a_wrong_default_in_the_file_would_be_seen() -> None:
    text = render_settings(InitOptions(Path("d"), Network.DEVELOPMENT, 9, Store.SQLITE, 2001, 2002, tls=False))
    Path("plain.toml").write_text(text, "utf-8")
    Path("wrong.toml").write_text(DEFAULT.sub("", text.replace("block_ms = 2000", "block_ms = 2001")), "utf-8")
    assert loaded(Path("plain.toml")) != loaded(Path("wrong.toml"))


@pytest.mark.parametrize(
    ("there", "named"),
    [
        ({"holdfast.toml": b"mine"}, "holdfast.toml"),
        ({"holdfast-data/journal.db": b"mine"}, "holdfast-data"),
        ({"holdfast-data/keys/node.pem": b"mine"}, "node.pem"),
        ({"holdfast-data": b"a file"}, "holdfast-data"),
    ],
)
def test_nothing_that_is_there_is_overwritten_and_nothing_else_is_made(there: dict[str, bytes], named: str) -> None:
    for name, raw in there.items():
        Path(name).parent.mkdir(exist_ok=True, parents=True)
        Path(name).write_bytes(raw)
    before = everything(Path())
    code, said, refused = init("--tls", "localhost")
    assert (code, said) == (1, "")
    assert re.match(rf"holdfast: SEC-001: .*{named} already exists", refused)
    assert everything(Path()) == before


def test_made_twice_the_second_time_is_refused() -> None:
    assert init()[0] == 0
    before = everything(Path())
    assert init()[0] == 1
    assert everything(Path()) == before


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--tls", "not a name"), "'not a name'"),
        (("--http", "2001", "--grpc", "2001"), "both are 2001"),
        (("--network", "moon"), "'moon'"),
        (("--http", "0"), "--http"),
        (("--grpc", "65536"), "--grpc"),
        (("--chain-id", "-1"), "--chain-id"),
    ],
)
def test_what_cannot_be_is_named_and_nothing_is_made(args: tuple[str, ...], says: str) -> None:
    code, said, refused = init("deep/down", *args)
    assert (code, said) == (2, "")
    assert says in refused
    assert everything(Path()) == {}


def test_an_empty_folder_that_was_open_is_closed() -> None:
    Path("holdfast-data").mkdir(mode=0o755)
    Path("holdfast-data").chmod(0o755)
    assert init()[0] == 0
    assert mode(Path("holdfast-data")) == 0o700


def test_a_folder_that_cannot_be_made_is_named() -> None:
    Path("file").write_bytes(b"mine")
    code, _, refused = init("file/node")
    assert code == 75
    assert "file/node: Not a directory" in refused
    assert Path("file").read_bytes() == b"mine"


def tls(*args: str) -> tuple[int, str, str]:
    done = run_program("tls", *args)
    return done.returncode, done.stdout, done.stderr


def test_certificates_are_renewed_and_given_to_clients_by_the_same_authority() -> None:
    assert init("--tls", "old.example.org")[0] == 0
    keys = Path("holdfast-data/keys")
    authority = (keys / "ca.pem").read_bytes()
    code, _, refused = tls("server", "new.example.org")
    assert (code, "server.pem already exists" in refused) == (1, True)
    for name in ("server.pem", "server.key"):
        (keys / name).rename(keys / f"old-{name}")
    assert tls("server", "new.example.org", "--days", "5")[0] == 0
    assert "new.example.org" in describe_file(keys / "server.pem").names
    assert tls("client", "oak")[0] == 0
    assert describe_file(keys / "client-oak.pem").issuer == describe_file(keys / "ca.pem").subject
    assert (keys / "ca.pem").read_bytes() == authority
    listed = tls("list")[1].splitlines()
    assert [line.split()[0] for line in listed] == ["FILE", "ca.pem", "client-oak.pem", "old-server.pem", "server.pem"]
    assert tls("client", "../oak")[0] == 2


def test_a_struct_is_compared_field_by_field() -> None:
    """The comparison above is worth something: two settings that differ anywhere are not equal."""
    config = load(None, {}, {})
    assert isinstance(config, Config)
    assert config != msgspec.structs.replace(config, node="other")
