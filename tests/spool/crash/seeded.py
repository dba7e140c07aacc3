"""The spool with a seeded fault, loaded beside the sound one: in this process, for as long as it is looked at."""

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

from tests.spool.crash.laws import Law
from tests.spool.crash.mutants import Mutant

SPOOL = Path(__file__).parents[3] / "src" / "holdfast" / "spool"
ANEW = ("holdfast.spool", "tests.spool")
"""The spool, and everything here that holds on to it."""


class _Changed(SourceLoader):
    """A module from a text, never from a cache."""

    def __init__(self, path: Path, source: str) -> None:
        self._path, self._source = path, source

    def get_filename(self, fullname: str) -> str:
        return f"{self._path}: seeded"

    def get_data(self, path: str | bytes) -> bytes:
        return self._source.encode()


class _Finder(MetaPathFinder):
    """Gives the changed modules; all others come from where they always come from."""

    def __init__(self, changed: dict[str, str]) -> None:
        self._changed = changed

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        package, _, module = name.rpartition(".")
        file = f"{module}.py"
        if package != "holdfast.spool" or file not in self._changed:
            return None
        return spec_from_loader(name, _Changed(SPOOL / file, self._changed[file]))


def changed(mutant: Mutant) -> dict[str, str]:
    """The sources that a mutant changes, by file. A place that is not there any more is told: the mutant is mended."""
    found: dict[str, str] = {}
    for file, old, new in mutant.changes:
        source = found.get(file) or (SPOOL / file).read_text()
        assert source.count(old) == 1, f"the source has changed: mend the mutant ({file}: {old!r})"
        found[file] = source.replace(old, new)
    return found


@contextmanager
def _loaded(sources: dict[str, str]) -> Iterator[ModuleType]:
    """The harness over a spool with these sources; afterwards all modules are the ones from before."""
    before = {name: module for name, module in sys.modules.items() if name.startswith(ANEW)}
    finder = _Finder(sources)
    sys.meta_path.insert(0, finder)
    _take_out()
    try:
        yield importlib.import_module("tests.spool.crash.prove")
    finally:
        sys.meta_path.remove(finder)
        _take_out()
        sys.modules.update(before)
        for name, module in before.items():
            package, _, last = name.rpartition(".")
            setattr(sys.modules[package], last, module)


def _take_out() -> None:
    for name in [name for name in sys.modules if name.startswith(ANEW)]:
        del sys.modules[name]


def broken_law(walk: str, sources: dict[str, str]) -> Law | None:
    """The first law that does not hold on this walk ("plain: crashes in oE"), with the rule it belongs to."""
    with _loaded(sources) as prove:
        found = prove.walked(walk)
    return None if found is None else Law(*found.law)
