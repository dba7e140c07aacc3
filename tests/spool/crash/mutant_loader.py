"""The spool with a seeded fault, loaded in this process in place of the real one while it is tested."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder, SourceLoader
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType

from tests.spool.crash.invariants import Invariant
from tests.spool.crash.mutants import SpoolMutant

SPOOL = Path(__file__).parents[3] / "src" / "holdfast" / "spool"
PACKAGE = "holdfast.spool."
RELOADED = ("holdfast.spool", "tests.spool")
"""The spool, and the tests that have imported it."""


class _MutatedSource(SourceLoader):
    """A module from a text, never from a cache."""

    def __init__(self, path: Path, source: str) -> None:
        self._path, self._source = path, source

    def get_filename(self, fullname: str) -> str:
        return f"{self._path}: seeded"

    def get_data(self, path: str | bytes) -> bytes:
        return self._source.encode()


class _MutantFinder(MetaPathFinder):
    """Finds the changed modules, by file below the package; all others are found as usual."""

    def __init__(self, changed: dict[str, str]) -> None:
        self._changed = changed

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        file = f"{name.removeprefix(PACKAGE).replace('.', '/')}.py"
        if not name.startswith(PACKAGE) or file not in self._changed:
            return None
        return spec_from_loader(name, _MutatedSource(SPOOL / file, self._changed[file]))


def mutated_sources(mutant: SpoolMutant) -> dict[str, str]:
    """The sources that a mutant changes, by file. It fails where a text to change does not occur exactly once."""
    sources: dict[str, str] = {}
    for file, old, new in mutant.changes:
        source = sources.get(file) or (SPOOL / file).read_text()
        assert source.count(old) == 1, f"the source has changed: update the mutant ({file}: {old!r})"
        sources[file] = source.replace(old, new)
    return sources


@contextmanager
def _with_sources(sources: dict[str, str]) -> Iterator[ModuleType]:
    """The test harness with these sources of the spool; afterwards all modules are restored."""
    before = {name: module for name, module in sys.modules.items() if name.startswith(RELOADED)}
    finder = _MutantFinder(sources)
    sys.meta_path.insert(0, finder)
    _unload()
    try:
        yield importlib.import_module("tests.spool.crash.check_history")
    finally:
        sys.meta_path.remove(finder)
        _unload()
        sys.modules.update(before)
        for name, module in before.items():
            package, _, last = name.rpartition(".")
            setattr(sys.modules[package], last, module)


def _unload() -> None:
    for name in [name for name in sys.modules if name.startswith(RELOADED)]:
        del sys.modules[name]


def broken_invariant(walk: str, sources: dict[str, str]) -> Invariant | None:
    """The first invariant that does not hold on this walk ("plain: crashes in oE"), with its rule."""
    with _with_sources(sources) as check_history:
        broken = check_history.run_walk(walk)
    return None if broken is None else Invariant(*broken.invariant)
