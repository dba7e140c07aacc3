"""Pages that repeat what the code says agree with it: commands, the glossary's modules and rules, state charts."""

from __future__ import annotations

import re
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.core.reachable_states import unreachable_states
from tests.rules import ID, NOT_RULES, ROOT, rules_of_spec
from tools import draw_state_charts, generate_reference

from holdfast.api.error_codes import ERROR_CODES
from holdfast.api.public_events import event_names
from holdfast.api.rpc.methods import METHODS
from holdfast.cli import VERBS, app
from holdfast.config import LEAVES

GLOSSARY = ROOT / "docs" / "glossary.md"
DECISIONS = ROOT / "docs" / "decisions.md"
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
ROW = re.compile(r"^\| (?P<term>[^|]+) \| (?P<meaning>[^|]+) \| (?P<rule>[^|]+) \| (?P<module>[^|]+) \|$")


def rows(page: str) -> list[dict[str, str]]:
    """The table of terms: its rows without the two of its head."""
    found = [match.groupdict() for line in page.splitlines() if (match := ROW.match(line))]
    return [row for row in found if row["term"] not in ("term", "---")]


def glossary_faults(page: str, rules: list[str], source: Path) -> list[str]:
    """Terms without a meaning that is a sentence, with an unknown rule, or with a module that does not exist."""
    faults = [f"no row: {line}" for line in page.splitlines() if line.startswith("| ") and not ROW.match(line)]
    terms = [row["term"] for row in rows(page)]
    faults += [f"{term}: defined twice" for term in sorted({term for term in terms if terms.count(term) > 1})]
    for row in rows(page):
        faults += [f"{row['term']}: no sentence"] * (not row["meaning"].rstrip().endswith("."))
        named = re.split(r", ", row["rule"]) if row["rule"] != "–" else []
        faults += [f"{row['term']}: no rule {rule}" for rule in named if rule not in rules]
        for module in re.findall(r"`([^`]+)`", row["module"]) or [f"no module in {row['module']!r}"]:
            if not ((source / f"{module}.py").is_file() or (source / module / "__init__.py").is_file()):
                faults.append(f"{row['term']}: no module {module}")
    return faults


def test_every_term_of_the_glossary_has_a_sentence_a_rule_and_a_module_that_exist() -> None:
    page = GLOSSARY.read_text("utf-8")
    assert len(rows(page)) > 100
    assert glossary_faults(page, rules_of_spec(), ROOT / "src" / "holdfast") == []


def test_the_terms_of_the_glossary_are_in_alphabetical_order() -> None:
    terms = [row["term"].lower() for row in rows(GLOSSARY.read_text("utf-8"))]
    assert terms == sorted(terms)


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("| lease | No end | LEA-001 | `core` |", "lease: no sentence"),
        ("| lease | A sentence. | LEA-999 | `core` |", "lease: no rule LEA-999"),
        ("| lease | A sentence. | LEA-001 | `attic` |", "lease: no module attic"),
        ("| lease | A sentence. | LEA-001 | core |", "lease: no module no module in 'core'"),
        ("| lease | A sentence. | LEA-001 |", "no row: | lease | A sentence. | LEA-001 |"),
        ("| lease | A sentence. | – | `core` |\n| lease | A sentence. | – | `core` |", "lease: defined twice"),
    ],
)
def test_a_fault_of_the_glossary_is_seen(row: str, fault: str) -> None:
    assert glossary_faults(row, ["LEA-001"], ROOT / "src" / "holdfast") == [fault]


def test_the_data_flow_names_one_module_a_stage_and_each_exists() -> None:
    page = (ROOT / "docs" / "explanation" / "data_flow.md").read_text("utf-8")
    stages = re.findall(r"^\| \d\. \w+ \| `([\w/]+)` \|", page, flags=re.MULTILINE)
    assert len(stages) == 8
    named = {*stages, *re.findall(r"`((?:api|core|engine)/[\w/]+)`", page)}
    source = ROOT / "src" / "holdfast"
    assert [each for each in sorted(named) if not ((source / f"{each}.py").is_file() or (source / each).is_dir())] == []


def unknown_commands(page: str) -> list[str]:
    """Commands `holdfast VERB [SUB]` of a page that the command line does not have."""
    faults = []
    for match in re.finditer(
        r"(?:^|[`(/ ])(?<!from )holdfast ([a-z]+)(?: ([a-z][a-z-]+))?(?=[ `)\n]|$)", page, flags=re.MULTILINE
    ):
        verb, sub = match.groups()
        if verb not in VERBS:
            faults.append(f"holdfast {verb}")
        elif sub and (known := _sub_verbs(verb)) and sub not in known:
            faults.append(f"holdfast {verb} {sub}")
    return faults


def _sub_verbs(verb: str) -> set[str]:
    command = typer.main.get_command(import_module(f"holdfast.cli.{verb}").app)
    return set(getattr(command, "commands", ()))


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "SECURITY.md", *PAGES])
def test_every_command_that_a_page_names_exists(name: str) -> None:
    commands = re.findall(r"```[a-z]*\n.*?```|`[^`\n]+`", (ROOT / name).read_text("utf-8"), flags=re.DOTALL)
    assert unknown_commands("\n".join(commands)) == []


def test_a_command_that_does_not_exist_is_seen() -> None:
    page = "`holdfast key new` `holdfast key create` `holdfast letgo` holdfast up & holdfast status"
    assert unknown_commands(page) == ["holdfast key new", "holdfast letgo"]


def test_decisions_are_numbered_without_gaps_and_name_rules_that_exist() -> None:
    page = DECISIONS.read_text("utf-8")
    numbers = [int(number) for number in re.findall(r"^### D-(\d{3}) ", page, flags=re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert re.findall(r"^### (?!D-\d{3} ).*$", page, flags=re.MULTILINE) == []
    assert set(re.findall(r"\bD-\d{3}\b", page)) == {f"D-{number:03}" for number in numbers}
    assert set(ID.findall(page)) - {f"D-{number:03}" for number in numbers} - NOT_RULES <= set(rules_of_spec())


@pytest.mark.parametrize("name", generate_reference.PAGES)
def test_a_page_of_the_reference_is_what_the_code_gives(name: str) -> None:
    written = (generate_reference.FOLDER / name).read_text("utf-8")
    assert written == generate_reference.PAGES[name](), "run make reference"


def test_the_reference_has_every_command_setting_method_event_and_error() -> None:
    text = {name: (generate_reference.FOLDER / name).read_text("utf-8") for name in generate_reference.PAGES}
    assert [verb for verb in VERBS if f"\n## {verb}\n" not in text["commands.md"]] == []
    assert [path for path in LEAVES if f"| `{path.rpartition('.')[2]}` |" not in text["settings.md"]] == []
    assert [name for name in METHODS if f"\n## {name}\n" not in text["methods.md"]] == []
    assert [name for name in event_names() if f"\n| `{name}` |" not in text["events.md"]] == []
    assert [name for name in ERROR_CODES if f"\n| `{name}` | -" not in text["errors.md"]] == []
    assert len(set(re.findall(r"^### ([A-Z-]+\d{3})$", text["errors.md"], re.MULTILINE))) > 80


def test_every_transition_table_of_core_is_drawn() -> None:
    sources = (path.read_text("utf-8") for path in (ROOT / "src" / "holdfast" / "core").rglob("*.py"))
    tables = {name for source in sources for name in re.findall(r"^(\w+): Final\[Transitions\[", source, re.MULTILINE)}
    assert {chart.table.rpartition(".")[2] for chart in draw_state_charts.CHARTS} == tables


def test_every_drawn_state_is_reached() -> None:
    for chart in draw_state_charts.CHARTS:
        assert unreachable_states(chart.transitions, chart.start) == frozenset()


def test_another_table_is_another_page() -> None:
    class Lamp(StrEnum):
        ON = "ON"
        OFF = "OFF"

    class Switch(StrEnum):
        PRESS = "press"

    chart = draw_state_charts.StateChart(
        "Lamp", "X-001", "a.B", Lamp.OFF, {Lamp.OFF: {Switch.PRESS: Lamp.ON}, Lamp.ON: {}}
    )
    drawn = draw_state_charts.page((chart,))
    assert "[*] --> OFF\n    OFF --> ON: press\n    ON --> [*]\n" in drawn
    assert drawn != draw_state_charts.page()


LINK = re.compile(r"\]\((?P<page>[^)#\s]*)(?:#(?P<anchor>[^)\s]+))?\)")
NAMED_PAGE = re.compile(r"\bdocs/[\w/-]+\.md\b")
"""A page that code, a message or a unit tells people to read."""


def anchors(page: str) -> set[str]:
    """The names that a page's headings get where it is shown, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(page: Path) -> list[str]:
    """Relative links of a page that lead nowhere, and anchors that no heading has."""
    faults = []
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.DOTALL)
    for link in LINK.finditer(text):
        if "://" in link["page"]:
            continue
        target = (page.parent / link["page"]).resolve() if link["page"] else page
        if not target.exists():
            faults.append(f"no such page: {link['page']}")
        elif link["anchor"] and link["anchor"] not in anchors(target.read_text("utf-8")):
            faults.append(f"no such heading: {link['page']}#{link['anchor']}")
    return faults


@pytest.mark.parametrize(
    "name", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "bench/README.md", "deploy/README.md", *PAGES]
)
def test_every_link_of_a_page_leads_somewhere(name: str) -> None:
    assert broken_links(ROOT / name) == []


def test_a_link_that_leads_nowhere_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Some title\n[a](other.md) [b](page.md#some-title) [c](#none) `[d](gone.md)` [e](https://x.org/#y)\n"
    )
    assert broken_links(page) == ["no such page: other.md", "no such heading: #none"]


def test_every_page_that_the_code_names_exists() -> None:
    folders = (ROOT / name for name in ("src", "tests", "tools", "bench", "deploy", "examples", ".github"))
    files = [
        path for folder in folders for path in folder.rglob("*") if path.suffix in {".py", ".yml", ".md", ".service"}
    ]
    files += [
        ROOT / name for name in ("Makefile", "CONTRIBUTING.md", "SECURITY.md", *PAGES) if name != "docs/decisions.md"
    ]
    named = {name for path in files for name in NAMED_PAGE.findall(path.read_text("utf-8"))}
    invented = {"docs/plan.md", "docs/log.md", "docs/spec/page.md"}  # by tests, as examples
    assert {name for name in named - invented if not (ROOT / name).is_file()} == set()


FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
NOT_RUN = re.compile(r"<!-- not run: [^>]{20,}-->")
SHELL = re.compile(r"^(?:[A-Z_]+=\S+ )*(?:holdfast|curl|make|pip|git|createdb) ", re.MULTILINE)
RUN_BY = {
    "README.md": "tests/stories/pages/test_readme.py",
    "docs/tutorial.md": "tests/stories/pages/test_tutorial.py",
    "docs/how-to/production.md": "tests/stories/pages/test_production.py",
}
"""Pages whose blocks of `bash` are run, and the test that runs them."""


def test_every_block_of_bash_is_run_by_a_test() -> None:
    written = {name for name in ("README.md", *PAGES) if "```bash\n" in (ROOT / name).read_text("utf-8")}
    assert written == set(RUN_BY), "a block that no test runs says why: <!-- not run: … --> and no language"
    assert [name for name, test in RUN_BY.items() if Path(name).name not in (ROOT / test).read_text("utf-8")] == []


def blocks_without_reason(page: str) -> list[str]:
    """Blocks of commands that no test runs, with no reason before them: for one block, or for the rest of the page."""
    faults = []
    for fence in FENCE.finditer(page):
        if (
            fence["language"] in ("", "sh")
            and SHELL.search(fence["text"])
            and not NOT_RUN.search(page[: fence.start()])
        ):
            faults.append(fence["text"].splitlines()[0])
    return faults


@pytest.mark.parametrize("name", ["README.md", *(name for name in PAGES if not name.startswith("docs/reference/"))])
def test_commands_that_no_test_runs_say_why(name: str) -> None:
    assert blocks_without_reason((ROOT / name).read_text("utf-8")) == []


def test_a_block_without_a_reason_is_seen() -> None:
    reason = "<!-- not run: needs a bucket of your own -->\n"
    block = "```\nholdfast up --store postgres\n```\n"
    assert blocks_without_reason(block + reason) == ["holdfast up --store postgres"]
    assert blocks_without_reason(reason + block) == []
    assert blocks_without_reason("```\nact 1 of 6\n```\n") == []


COMMAND = re.compile(r"(?:^|[\s`(|;/])holdfast((?: [a-z][a-z-]*)+)(?P<rest>(?:[^`|;&#\n\\]|\\\n)*)", re.MULTILINE)


def unknown_options(text: str) -> list[str]:
    """Options in commands of a page that the command does not have."""
    faults = []
    for match in COMMAND.finditer(text):
        known = _options(match[1].split())
        given = re.findall(r"(?<=\s)--[a-z][a-z-]+", match["rest"])
        faults += [f"holdfast{match[1]} {option}" for option in given if option not in known]
    return faults


def _options(words: list[str]) -> set[str]:
    """The options of the command that these words begin with; an agent is run where none is named."""
    command: Any = typer.main.get_command(app)
    while hasattr(command, "list_commands"):
        children = command.list_commands(typer.Context(command))
        named = words[0] if words and words[0] in children else None
        if named is None and command.name != "agent":
            break
        command, words = command.get_command(typer.Context(command), named or "run"), words[1:]
    return {each for param in command.params for each in (*param.opts, *param.secondary_opts)} | {"--help", "-h"}


@pytest.mark.parametrize(
    "name", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "deploy/README.md", "bench/README.md", *PAGES]
)
def test_every_option_that_a_page_names_exists(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    commands = re.findall(r"```[a-z]*\n.*?```|`[^`\n]+`", text, flags=re.DOTALL)
    assert unknown_options("\n".join(each.replace("\\\n", " ") for each in commands)) == []


def test_an_option_that_does_not_exist_is_seen() -> None:
    page = "`holdfast job run --modle echo` `holdfast up --store postgres` `holdfast db export --to DIR --ever 6h`"
    assert unknown_options(page) == ["holdfast job run --modle", "holdfast db export --ever"]


def test_the_pictures_of_the_readme_are_there_small_and_legible_in_light_and_dark() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    named = set(re.findall(r"docs/pictures/[\w.-]+", readme))
    there = {path.relative_to(ROOT).as_posix(): path.stat().st_size for path in (ROOT / "docs/pictures").iterdir()}
    assert named == set(there)
    assert {name: size for name, size in there.items() if size > 200_000} == {}
    assert "prefers-color-scheme: dark" in (ROOT / "docs/pictures/data_flow.svg").read_text("utf-8")
    assert {"docs/pictures/page-light.png", "docs/pictures/page-dark.png"} <= named
