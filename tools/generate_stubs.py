"""Generates the stubs in `wire/gen/` from the `.proto` files: `python -m tools.generate_stubs [--check]`.

The path below `proto/` is the package: `proto/holdfast/node/v1/node.proto` becomes
`holdfast.wire.gen.holdfast.node.v1.node_pb2`. It needs grpcio-tools, of the dev dependencies.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from holdfast.core.base.errors import Unavailable

WIRE: Final = Path(__file__).parents[1] / "src" / "holdfast" / "wire"
PROTO, GEN = WIRE / "proto", WIRE / "gen"
PACKAGE: Final = "holdfast.wire.gen"
PACKAGE_DOCSTRING: Final = (
    '"""Stubs generated from the .proto files by `python -m tools.generate_stubs`: never edited by hand."""\n'
)


def compile_stubs(proto: Path = PROTO) -> dict[str, bytes]:
    """Every file of `gen/`, by its path below it."""
    with tempfile.TemporaryDirectory(prefix="holdfast-stubs-") as folder:
        out = Path(folder)
        _compile(proto, out)
        made = {path.relative_to(out).as_posix(): path.read_text("utf-8") for path in out.rglob("*.py*")}
    imports = _imports_of({path.name for path in proto.iterdir()})
    stubs = {name: imports.sub(rf"\1{PACKAGE}.\2", text) for name, text in made.items()}
    packages = {parent.as_posix() for name in made for parent in Path(name).parents}
    stubs |= {(Path(package) / "__init__.py").as_posix(): PACKAGE_DOCSTRING for package in packages}
    return {name: text.encode() for name, text in stubs.items()}


def differences(made: dict[str, bytes], gen: Path = GEN) -> list[str]:
    """Files that differ from the generated ones: changed, missing, or generated from a file that was removed."""
    there = {path.relative_to(gen).as_posix(): path.read_bytes() for path in gen.rglob("*.py*") if _is_source(path)}
    return sorted(name for name in made.keys() | there.keys() if made.get(name) != there.get(name))


def write_stubs(made: dict[str, bytes], gen: Path = GEN) -> None:
    """Write these files and remove all others."""
    for name in differences(made, gen):
        path = gen / name
        if name not in made:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(made[name])


def main(args: Sequence[str]) -> int:
    made = compile_stubs()
    stale = differences(made)
    if "--check" not in args:
        write_stubs(made)
    for name in stale:
        print(f"{'differs' if '--check' in args else 'wrote'} {name}")
    return 1 if stale and "--check" in args else 0


def _compile(proto: Path, out: Path) -> None:
    sources = sorted(path.relative_to(proto).as_posix() for path in proto.rglob("*.proto"))
    targets = [f"--{kind}_out={out}" for kind in ("python", "pyi", "grpc_python")]
    command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={proto}", *targets, *sources]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own files
    if done.returncode != 0:
        raise Unavailable(
            "RPC-001", f"the stubs could not be generated: {done.stderr.strip()}", "check the .proto files"
        )


def _imports_of(roots: set[str]) -> re.Pattern[str]:
    """The imports to rewrite: protoc takes the path below `proto/` for the whole package, and it is only its end.

    A file imports another as `from holdfast.node.v1 import node_pb2 as …`.
    """
    return re.compile(rf"^(from )((?:{'|'.join(sorted(map(re.escape, roots)))})[.\w]* import \w+_pb2)", re.MULTILINE)


def _is_source(path: Path) -> bool:
    return path.suffix in {".py", ".pyi"}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
