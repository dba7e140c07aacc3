"""The systemd units: valid, hardened, and what they start are commands that exist, with options that exist."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.deploy.deploy_files import UNITS, unit_settings
from tests.stories.node_process import HOLDFAST
from typer.main import get_command

from holdfast.cli import app as cli
from holdfast.config import Config, load

EXPOSURE_MAX = 2.0
"""Of 10, as systemd-analyze counts."""
HARDENING = {
    "NoNewPrivileges": "yes",
    "CapabilityBoundingSet": "",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "ProtectKernelTunables": "yes",
    "RestrictNamespaces": "yes",
    "SystemCallArchitectures": "native",
    "UMask": "0077",
    "StateDirectoryMode": "0700",
}
units = pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="no systemd-analyze: THE UNITS ARE NOT VERIFIED, install systemd"
)


def test_there_is_a_unit_for_each_program() -> None:
    names = ["holdfast-agent@", "holdfast-export", "holdfast-gateway", "holdfast-node"]
    assert [unit.stem for unit in UNITS] == names


@units
def test_a_unit_runs_as_its_own_user_with_no_more_rights_than_it_needs(unit: Path) -> None:
    settings = unit_settings(unit)
    assert settings["Service.User"][0].startswith("holdfast")
    assert {name: settings[f"Service.{name}"] for name in HARDENING} == {
        name: [value] for name, value in HARDENING.items()
    }


@units
def test_what_a_unit_starts_is_a_command_with_options_that_exist(unit: Path) -> None:
    (line,) = unit_settings(unit)["Service.ExecStart"]
    program, *words = shlex.split(line)
    assert program == "/opt/holdfast/bin/holdfast"
    command = get_command(cli)
    context = command.make_context("holdfast", [words[0]], resilient_parsing=True)
    while hasattr(command, "get_command") and words and not words[0].startswith("-"):
        command = command.get_command(context, words.pop(0))  # the verb, then what it does
        assert command is not None, line
    if hasattr(command, "get_command"):
        command = command.get_command(context, "run")
    known = {option for parameter in command.params for option in parameter.opts}
    assert [word for word in words if word.startswith("--") and word not in known] == []


@units
def test_the_environment_of_a_unit_is_settings_that_exist(unit: Path) -> None:
    values = dict(value.split("=", 1) for value in unit_settings(unit).get("Service.Environment", ()))
    values.pop("HOLDFAST_CONFIG", None)
    loaded = load(None, values, {})
    assert isinstance(loaded, Config), loaded


@units
def test_a_unit_does_not_restart_what_somebody_has_to_look_at(unit: Path) -> None:
    settings = unit_settings(unit)
    assert settings["Service.Restart"] == ["on-failure"]
    assert "2" in settings["Service.RestartPreventExitStatus"][0].split()
    assert "74" in settings["Service.RestartPreventExitStatus"][0].split() or "agent" in unit.stem


def test_the_node_may_ask_what_it_needs_to_know() -> None:
    (node,) = [unit for unit in UNITS if unit.stem == "holdfast-node"]
    settings = unit_settings(node)
    assert settings["Service.SystemCallFilter"][-1] == "adjtimex clock_adjtime", (
        "whether a time server sets the clock (CAN-006)"
    )
    assert "Service.ProtectClock" not in settings
    assert "Service.ProcSubset" not in settings, "the boot id, by which a standby knows the owner's process (ENG-008)"


@needs_systemd
@units
def test_systemd_finds_no_fault_in_a_unit(unit: Path, tmp_path: Path) -> None:
    """With our own program in the place of the installed one."""
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/opt/holdfast/bin/holdfast", str(HOLDFAST)))
    verify = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(copy)]
    run = subprocess.run(verify, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    rate = ["systemd-analyze", "security", "--offline=yes", f"--threshold={EXPOSURE_MAX * 10:.0f}", str(copy)]
    run = subprocess.run(rate, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
