"""Configuration: file below environment below flags, and every fault of all three in one answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

import holdfast
from holdfast.adapters.postgres.settings import PostgresSettings
from holdfast.config import LEAVES, Config, LogFormat, LogLevel, Store, load, why_not_store
from holdfast.core.base.errors import Refused
from holdfast.core.base.values import Network
from holdfast.core.policy import MatchOrder, Policy


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(
    toml: str = "", environ: Mapping[str, str] | None = None, flags: Mapping[str, object] | None = None
) -> Config | list[Refused]:
    file = Path("here.toml")
    file.write_text(toml, "utf-8")
    return load(file, environ or {}, flags or {})


def good(toml: str = "", environ: Mapping[str, str] | None = None, flags: Mapping[str, object] | None = None) -> Config:
    config = read(toml, environ, flags)
    assert isinstance(config, Config), config
    return config


def bad(
    toml: str = "", environ: Mapping[str, str] | None = None, flags: Mapping[str, object] | None = None
) -> list[str]:
    wrong = read(toml, environ, flags)
    assert isinstance(wrong, list), wrong
    assert all(fault.name == "BadConfig" for fault in wrong)
    return [str(fault) for fault in wrong]


def test_without_anything_a_development_node_starts_in_the_working_directory() -> None:
    config = load(None, {}, {})
    assert config == Config()
    assert isinstance(config, Config)
    assert (config.data, config.node, config.policy) == (
        Path("holdfast-data"),
        "node",
        Policy.for_network(Network.DEVELOPMENT),
    )


def test_a_file_sets_leaves_of_every_depth() -> None:
    config = good(
        """
        data = "/srv/holdfast"
        node = "oak-1"
        network = "production"
        chain_id = 7
        [log]
        level = "debug"
        format = "json"
        [policy.lease]
        ai_ms = 700_000
        [policy.match]
        order = "spread"
        """
    )
    assert (config.data, config.node) == (Path("/srv/holdfast"), "oak-1")
    assert (config.log.level, config.log.format) == (LogLevel.DEBUG, LogFormat.JSON)
    assert (config.policy.network, config.policy.chain_id) == (Network.PRODUCTION, 7)
    assert (config.policy.lease.ai_ms, config.policy.match.order) == (700_000, MatchOrder.SPREAD)
    assert config.policy.lease.quantum_ms == Policy().lease.quantum_ms


def test_the_environment_is_above_the_file_and_a_flag_above_both() -> None:
    toml = "chain_id = 1\n[policy.lease]\nai_ms = 111_111\nquantum_ms = 111_111\nack_timeout_ms = 1_111"
    environ = {"HOLDFAST_POLICY__LEASE__AI_MS": "222222", "HOLDFAST_POLICY__LEASE__QUANTUM_MS": "222222"}
    lease = good(toml, environ, {"policy.lease.ai_ms": 333_333}).policy.lease
    assert (lease.ai_ms, lease.quantum_ms, lease.ack_timeout_ms) == (333_333, 222_222, 1_111)


def test_a_flag_that_is_none_was_not_given_and_a_path_is_taken_as_it_is() -> None:
    config = good('node = "oak"', {}, {"node": None, "data": Path("elsewhere")})
    assert (config.node, config.data) == ("oak", Path("elsewhere"))


def test_the_network_named_last_gives_the_defaults_and_single_leaves_stay_above_them() -> None:
    toml = 'network = "production"\n[policy.chain]\nfinality_depth = 3'
    assert good(toml).policy.result.max_inline_bytes == 0
    policy = good(toml, {"HOLDFAST_NETWORK": "development"}).policy
    assert (policy.chain.finality_depth, policy.result.max_inline_bytes) == (3, 65_536)


def test_the_environment_spells_true_false_and_none() -> None:
    environ = {
        "HOLDFAST_POLICY__ARCHIVE__SERVE_ARCHIVED": "false",
        "HOLDFAST_POLICY__RESULT__AUDIT_WINDOW_DAYS": "null",
    }
    policy = good("[policy.result]\naudit_window_days = 400", environ).policy
    assert (policy.archive.serve_archived, policy.result.audit_window_days) == (False, None)


def test_a_home_directory_may_be_written_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/oak")
    assert good('data = "~/data"').data == Path("/home/oak/data")


def test_variables_of_others_and_of_the_test_suite_are_not_settings() -> None:
    assert load(None, {"PATH": "/bin", "HOLDFAST_FULL": "1"}, {}) == Config()


def test_the_environment_may_name_the_file() -> None:
    Path("there.toml").write_text('node = "ash"', "utf-8")
    config = load(None, {"HOLDFAST_CONFIG": "there.toml"}, {})
    assert isinstance(config, Config)
    assert config.node == "ash"


def test_holdfast_toml_of_the_working_directory_is_read_when_no_file_is_named() -> None:
    Path("holdfast.toml").write_text('node = "fir"', "utf-8")
    config = load(None, {}, {})
    assert isinstance(config, Config)
    assert config.node == "fir"


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize("environ", [{}, {"HOLDFAST_CONFIG": "gone.toml"}])
def test_a_named_file_that_does_not_exist_is_a_fault_with_a_hint(environ: dict[str, str]) -> None:
    (fault,) = load(None if environ else Path("gone.toml"), environ, {})  # type: ignore[misc]
    assert str(fault).startswith("SEC-001: gone.toml: no such file (")


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize("raw", [b"data = ", b"\xff", b"a = 1\na = 2"])
def test_a_file_that_is_not_toml_is_a_fault_and_the_rest_is_still_read(raw: bytes) -> None:
    Path("bad.toml").write_bytes(raw)
    found = load(Path("bad.toml"), {"HOLDFAST_CHAIN_ID": "x"}, {})
    assert isinstance(found, list)
    assert [fault.message.split(":")[0] for fault in found] == ["bad.toml", "chain_id"]


def test_a_folder_in_place_of_a_file_is_a_fault(tmp_path: Path) -> None:
    (fault,) = load(tmp_path, {}, {})  # type: ignore[misc]
    assert "not readable as TOML" in str(fault)


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize(
    ("toml", "says"),
    [
        ('chain_id = "1"', "chain_id: Expected `int`, got `str`"),
        ("chain_id = 1.5", "chain_id: Expected `int`, got `float`"),
        ("chain_id = true", "chain_id: Expected `int`, got `bool`"),
        ('data = ""', "data: Expected `str` of length >= 1"),
        ('node = "Oak tree"', "node: Expected `str` matching regex"),
        ('network = "main"', "network: Invalid enum value 'main'"),
        ("[node]\nx = 1", "node: Expected `str`, got `object`"),
        ("policy = 3", "policy: a table of settings, not a value"),
        ("[policy]\nlease = 3", "policy.lease: a table of settings, not a value"),
    ],
)
def test_a_value_of_the_wrong_type_is_named_by_its_path(toml: str, says: str) -> None:
    (fault,) = bad(toml)
    assert fault.startswith(f"SEC-001: {says}")
    assert "in here.toml" in fault


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize(
    ("toml", "meant"),
    [
        ("chainid = 1", "chain_id"),
        ("[policy.leese]\nai_ms = 1", "policy.lease"),
        ("[policy.lease]\nai_msec = 1", "policy.lease.ai_ms"),
        ("[policy]\nchain_id = 1", "chain_id"),
        ("finality_depth = 1", "policy.chain.finality_depth"),
    ],
)
def test_an_unknown_setting_is_refused_with_the_one_probably_meant(toml: str, meant: str) -> None:
    (fault,) = bad(toml)
    assert "no such setting" in fault
    assert f"did you mean {meant}?" in fault


def test_an_unknown_setting_unlike_any_other_gets_no_guess() -> None:
    (fault,) = bad("", {"HOLDFAST_ZZZZZZ": "1"})
    assert fault == "SEC-001: zzzzzz: no such setting (from HOLDFAST_ZZZZZZ)"


@pytest.mark.rule("SEC-001", "CHN-005")
def test_every_fault_of_file_environment_flags_and_policy_is_in_one_answer() -> None:
    found = bad(
        "nod = 1\n[policy.retry]\nfailures_max = 0\n[policy.result]\nretain_hot_blocks = 1",
        {"HOLDFAST_POLICY__LEASE__AI_MS": "soon", "HOLDFAST_CHAIN_ID": "-1"},
        {"log.level": "loud"},
    )
    assert [fault.split(":")[0] + fault.split(":")[1] for fault in found] == [
        "SEC-001 nod",
        "SEC-001 policy.lease.ai_ms",
        "SEC-001 log.level",
        "SEC-001 chain_id",
        "SEC-001 policy.retry.failures_max",
        "CHN-005 policy.chain.finality_depth",
    ]


def test_a_refused_leaf_leaves_the_files_below_it_untouched_and_adds_no_second_fault() -> None:
    (fault,) = bad("[policy.retry]\ncap_ms = 600_000", {"HOLDFAST_POLICY__RETRY__CAP_MS": "x"})
    assert "HOLDFAST_POLICY__RETRY__CAP_MS" in fault


@pytest.mark.parametrize("path", sorted(LEAVES))
def test_every_leaf_can_be_set_from_the_environment(path: str) -> None:
    name = "HOLDFAST_" + path.upper().replace(".", "__")
    found = load(None, {name: "\N{SNOWMAN} no"}, {})
    any_text = (".host", ".certificate", ".key", ".client_ca", ".folder")
    files = ("archive.token_file", "archive.peers_token_file")
    any_word = ("data", "asrun_folder", "http.origins", "http.cors_origins", "http.trusted_proxies", "archive.url")
    if path in (*any_word, *files) or path.endswith(any_text):
        assert isinstance(found, Config)
    else:
        assert isinstance(found, list)
        assert [fault.message.split(":")[0] for fault in found] == [path]


# ------------------------------------------------------------------------------------------------ the store

DSN = "postgresql://oak:geheim@db.example/holdfast"


def test_the_store_is_sqlite_unless_configured_otherwise() -> None:
    config = good()
    assert (config.store, config.postgres) == (Store.SQLITE, PostgresSettings())
    assert why_not_store(config) is None


def test_a_server_is_described_by_file_and_environment_together() -> None:
    toml = 'store = "postgres"\n[postgres]\nschema = "oak"\nallow_unsafe = true\ncommand_timeout_ms = 5'
    config = good(toml, {"HOLDFAST_POSTGRES__DSN": DSN})
    told = config.postgres
    assert (config.store, told.schema, told.allow_unsafe) == (Store.POSTGRES, "oak", True)
    assert (told.connect_timeout_ms, told.command_timeout_ms) == (10_000, 5)
    assert told.dsn is not None
    assert told.dsn.reveal() == DSN
    assert why_not_store(config) is None


def test_the_dsn_may_stand_in_a_file_of_its_own_and_the_environment_is_above_it() -> None:
    Path("dsn").write_text(f"{DSN}\n", "utf-8")
    toml = '[postgres]\ndsn_file = "dsn"'
    for environ, expected in (({}, DSN), ({"HOLDFAST_POSTGRES__DSN": f"{DSN}2"}, f"{DSN}2")):
        dsn = good(toml, environ).postgres.dsn
        assert dsn is not None
        assert dsn.reveal() == expected


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize(
    ("toml", "environ", "flags"),
    [
        (f'[postgres]\ndsn = "{DSN}"', {}, {}),
        ("", {}, {"postgres.dsn": DSN}),
        ("", {"HOLDFAST_POSTGRES__DSN": "oak:geheim@db"}, {}),
        ('[postgres]\ndsn_file = "nowhere/geheim"', {}, {}),
        ('[postgres]\ndsn_file = "other"', {}, {}),
        ('[postgres]\ndsn_file = "binary"', {}, {}),
    ],
)
def test_a_dsn_in_the_wrong_place_or_shape_is_refused_and_not_repeated(
    toml: str, environ: dict[str, str], flags: dict[str, str]
) -> None:
    Path("other").write_text("mysql://oak:geheim@db", "utf-8")
    Path("binary").write_bytes(b"\xff geheim")
    (fault,) = bad(toml, environ, flags)
    assert "postgres.dsn" in fault
    assert "geheim@" not in fault
    assert DSN not in fault


@pytest.mark.rule("SEC-001")
def test_a_configuration_that_is_printed_shows_no_secret() -> None:
    config = good("", {"HOLDFAST_POSTGRES__DSN": DSN})
    assert "geheim" not in repr(config)
    assert "geheim" not in f"{config.postgres.dsn}"


@pytest.mark.rule("SEC-001")
def test_what_the_store_lacks_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    config = good('store = "postgres"')
    assert "HOLDFAST_POSTGRES__DSN" in str(why_not_store(config))
    monkeypatch.setattr("holdfast.config.find_spec", lambda name: None)
    config = good('store = "postgres"', {"HOLDFAST_POSTGRES__DSN": DSN})
    assert "pip install 'holdfast[postgres]'" in str(why_not_store(config))
    assert why_not_store(good()) is None


@pytest.mark.parametrize("name", ["", "Upper", "1st", "pg_mine", "a b", "a" * 41])
def test_a_name_that_is_no_schema_is_refused(name: str) -> None:
    (fault,) = bad(f'[postgres]\nschema = "{name}"')
    assert fault.startswith("SEC-001: postgres.schema: ")


BY_SEVERITY = re.compile(r"(slash|jail)_(minor|major|severe)_(ppm|blocks)")
"""Read by a name that is put together from the severity."""


def test_every_setting_is_read_by_some_code() -> None:
    """`policy.archive` waits for the archive."""
    source = Path(holdfast.__file__).parent
    declared = {source / "config.py", source / "cli/init/template.py", *(source / "core/policy").iterdir()}
    declared |= set(source.rglob("settings.py"))
    code = "\n".join(file.read_text() for file in source.rglob("*.py") if file not in declared)
    names = {path.rpartition(".")[2] for path in LEAVES if not path.startswith("policy.archive.")}
    names -= {"dsn_file", "enabled", *(name for name in names if BY_SEVERITY.fullmatch(name))}  # read in config.py
    own = "\n".join(file.read_text() for file in source.rglob("api/*/settings.py"))  # turned into options of the server
    assert [name for name in sorted(names) if f".{name}" not in code + own and f'"{name}"' not in code] == []


@pytest.mark.rule("SEC-001")
@pytest.mark.parametrize("path", ["policy.spool.flush_interval_ms", "policy.engine.commands_waiting_max"])
def test_a_setting_that_no_code_reads_is_refused(path: str) -> None:
    assert any(f"{path}: no such setting" in fault for fault in bad("", {}, {path: 1}))
