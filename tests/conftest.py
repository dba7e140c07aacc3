"""What every test shares: the rules it proves, the counts of this run, and Hypothesis set to be repeatable."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import settings
from tests.counts import FULL, counts
from tests.rules import rules_of_spec

if TYPE_CHECKING:
    from tests.postgres.server import Server
    from tests.seaweedfs.server import SeaweedServer
    from tests.storage.stores import Place

settings.register_profile("quick", deadline=None, derandomize=True, print_blob=True, max_examples=50)
settings.register_profile("full", deadline=None, print_blob=True, max_examples=300)
settings.load_profile("full" if FULL else "quick")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs behind a script deaf to Ctrl-C, and so would be all programs that the tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)

STORIES: Final = Path(__file__).parent / "stories"
PROPERTY: Final = "rule"
"""Under this name a test's report carries the rules it proves."""


@pytest.fixture(name="counts", scope="session")
def _counts() -> Callable[[int, int], int]:
    return counts


# ------------------------------------------------------------------------------------------------ stores


@pytest.fixture(scope="session")
def postgres_programs() -> Iterator[Path]:
    from tests.postgres.server import programs  # here, so that a run without a server loads nothing of it

    with programs() as folder:
        yield folder


@pytest.fixture(scope="session")
def postgres(postgres_programs: Path) -> Iterator[Server]:
    """One server for all tests of this process, started by the first that asks for it; each test has its own schema."""
    from tests.postgres.server import running

    with running(postgres_programs) as server:
        yield server


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[SeaweedServer]:
    """One object store for all tests of this process, started by the first that asks; each has its own bucket."""
    from tests.seaweedfs.server import running

    with running() as server:
        yield server


@pytest.fixture
async def admin(postgres: Server) -> AsyncIterator[Any]:
    """The server's superuser, who looks and interferes."""
    import asyncpg

    connection = await asyncpg.connect(postgres.superuser)
    yield connection
    await connection.close()


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where a test's store lies."""
    from tests.storage.stores import Place

    return Place(tmp_path, lambda: request.getfixturevalue("postgres"))


# ------------------------------------------------------------------------------------------------ selection


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Full counts only on demand; and every test carries its rules into its report, also out of an xdist worker."""
    if not FULL:
        left_out = [item for item in items if item.get_closest_marker("full")]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if not item.get_closest_marker("full")]
    for item in items:
        for mark in item.iter_markers("rule"):
            item.user_properties += [(PROPERTY, rule) for rule in mark.args]
    if (workers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))) > 1:
        items[:] = stories_first(items, workers)


def stories_first(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Each worker begins with its share of the stories: short tests at the end leave no worker idle for a minute.

    xdist gives every worker an equal part of the list, in order; who has finished takes from the end of another's part.
    """
    stories = [item for item in items if STORIES in item.path.parents]
    others = [item for item in items if STORIES not in item.path.parents]
    parts: list[pytest.Item] = []
    for worker in range(workers):
        own = stories[worker::workers]
        room = (len(items) - len(parts)) // (workers - worker) - len(own)
        parts += own + others[: max(0, room)]
        others = others[max(0, room) :]
    return parts + others


# ------------------------------------------------------------------------------------------------ proof


class Proofs:
    """Listens to the reports on the controller and knows at the end which rules no passed test has proven."""

    def __init__(self, rules: Iterable[str]) -> None:
        self.unproven = set(rules)
        self.failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A rule is proven by a test whose call passed."""
        if report.when == "call" and report.passed:
            self.unproven -= {rule for name, rule in report.user_properties if name == PROPERTY}

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, None, None]:
        """A whole run that leaves a rule unproven fails, even when every test in it passed."""
        yield
        self.failed = bool(self.unproven) and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if self.failed:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Names what is missing."""
        if self.failed:
            terminalreporter.section("rules without proof", red=True)
            for rule in sorted(self.unproven):
                terminalreporter.line(f"{rule}: no test that passed is marked with it", red=True)


def is_whole(config: pytest.Config) -> bool:
    """Nothing was selected or left out by hand, and the tests do run: only then is a missing proof a fault."""
    options = config.option
    by_hand = ("keyword", "markexpr", "deselect", "ignore", "ignore_glob", "lf", "stepwise", "collectonly", "maxfail")
    return (
        config.args_source is pytest.Config.ArgsSource.TESTPATHS
        and not any(getattr(options, name, None) for name in by_hand)
        and not hasattr(config, "workerinput")
    )


def pytest_configure(config: pytest.Config) -> None:
    """A worker only reports; the controller keeps the account."""
    if is_whole(config):
        config.pluginmanager.register(Proofs(rules_of_spec()), "holdfast-proofs")
