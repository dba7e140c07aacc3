"""The container file: known instructions, sources and extras that exist, no registry, no root, a stop in order."""

from __future__ import annotations

import json
import re
import tomllib

from tests.deploy.deploy_files import DEPLOY, ROOT

from holdfast.api.grpc.settings import GrpcSettings
from holdfast.api.http.settings import HttpSettings
from holdfast.cli import VERBS
from holdfast.config import Config, load
from holdfast.gateway.settings import GatewaySettings

INSTRUCTIONS = {
    *("FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK"),
    *("ENTRYPOINT", "CMD"),
}


def instructions() -> list[tuple[str, str]]:
    text = (DEPLOY / "Containerfile").read_text()
    joined = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    lines = [line for line in joined.splitlines() if line.strip()]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines]


def values(name: str) -> list[str]:
    return [value for instruction, value in instructions() if instruction == name]


def test_every_line_is_an_instruction() -> None:
    assert {name for name, _ in instructions()} <= INSTRUCTIONS
    for name in ("ENTRYPOINT", "CMD", "VOLUME"):
        assert isinstance(json.loads(values(name)[-1]), list), "signals reach the program itself, no shell"


def test_images_have_a_version_and_no_registry() -> None:
    for value in values("FROM"):
        image = value.split()[0]
        assert re.fullmatch(r"[a-z]+:\d[\w.-]*", image), image


def test_what_is_copied_is_there_and_is_what_the_build_needs() -> None:
    sources = [word for value in values("COPY") if "--from" not in value for word in value.split()[:-1]]
    assert all((ROOT / source).exists() for source in sources), sources
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {project["readme"], *project["license-files"], "pyproject.toml", "src"} <= set(sources)
    (extras,) = re.findall(r'"\.\[([\w,]+)\]"', " ".join(values("RUN")))
    assert set(extras.split(",")) == set(project["optional-dependencies"])


def test_it_runs_as_nobody_in_particular_and_stops_as_a_node_does() -> None:
    user, _, group = values("USER")[-1].partition(":")
    assert user.isdecimal()
    assert int(user) == int(group) > 0
    assert values("STOPSIGNAL") == ["SIGTERM"]


def test_its_commands_ports_and_settings_exist() -> None:
    assert json.loads(values("ENTRYPOINT")[0]) == ["holdfast"]
    health = json.loads(values("HEALTHCHECK")[0].partition("CMD ")[2])
    assert {json.loads(values("CMD")[-1])[0], health[1]} <= set(VERBS)
    ports = {str(settings.port) for settings in (HttpSettings(), GrpcSettings(), GatewaySettings())}
    assert set(values("EXPOSE")[0].split()) == ports
    environ = dict(word.split("=", 1) for word in values("ENV")[0].split())
    loaded = load(None, environ, {})
    assert isinstance(loaded, Config), loaded
    assert json.loads(values("VOLUME")[0]) == [str(loaded.data)] == values("WORKDIR")[-1:]
