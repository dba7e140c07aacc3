"""The committed stubs are what the .proto files say, byte for byte, and the one command makes them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools.generate_stubs import GEN, PROTO, compile_stubs, differences, main, write_stubs

from holdfast.core.base.errors import Unavailable

pytestmark = pytest.mark.rule("RPC-001")


@pytest.fixture(scope="module")
def made() -> dict[str, bytes]:
    return compile_stubs()


def test_the_committed_stubs_are_byte_for_byte_what_the_command_makes(made: dict[str, bytes]) -> None:
    assert differences(made) == [], "run: python -m tools.generate_stubs"
    assert main(["--check"]) == 0


def test_every_proto_file_has_its_stubs(made: dict[str, bytes]) -> None:
    for path in PROTO.rglob("*.proto"):
        stem = path.relative_to(PROTO).with_suffix("").as_posix()
        assert {f"{stem}_pb2.py", f"{stem}_pb2.pyi", f"{stem}_pb2_grpc.py"} <= made.keys()


def test_a_proto_file_lies_where_its_package_says() -> None:
    for path in PROTO.rglob("*.proto"):
        package = re.search(r"^package ([\w.]+);", path.read_text("utf-8"), re.MULTILINE)
        assert package is not None
        assert path.parent.relative_to(PROTO).as_posix() == package[1].replace(".", "/")


def test_a_stub_that_was_changed_is_missing_or_is_of_yesterday_is_seen_and_put_right(
    tmp_path: Path, made: dict[str, bytes]
) -> None:
    write_stubs(made, tmp_path)
    assert differences(made, tmp_path) == []
    changed, missing, old = sorted(made)[-1], sorted(made)[0], "holdfast/gone/v1/gone_pb2.py"
    (tmp_path / changed).write_bytes(made[changed] + b"# by hand\n")
    (tmp_path / missing).unlink()
    (tmp_path / old).parent.mkdir(parents=True)
    (tmp_path / old).write_text("")
    assert differences(made, tmp_path) == sorted([changed, missing, old])
    write_stubs(made, tmp_path)
    assert differences(made, tmp_path) == []


def test_a_file_that_imports_another_finds_it_in_its_package(tmp_path: Path) -> None:
    (tmp_path / "oak" / "v1").mkdir(parents=True)
    opening = 'syntax = "proto3";\npackage oak.v1;\n'
    (tmp_path / "oak" / "v1" / "leaf.proto").write_text(f"{opening}message Leaf {{}}\n")
    (tmp_path / "oak" / "v1" / "tree.proto").write_text(
        f'{opening}import "oak/v1/leaf.proto";\nimport "google/protobuf/empty.proto";\n'
        "message Tree { Leaf leaf = 1; google.protobuf.Empty nothing = 2; }\n"
    )
    found = compile_stubs(tmp_path)
    for name in ("oak/v1/tree_pb2.py", "oak/v1/tree_pb2.pyi"):
        assert b"from holdfast.wire.gen.oak.v1 import leaf_pb2" in found[name]
        assert b"from google.protobuf import empty_pb2" in found[name]


def test_a_proto_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "oak").mkdir()
    (tmp_path / "oak" / "bad.proto").write_text("message {")
    with pytest.raises(Unavailable, match=r"oak/bad\.proto"):
        compile_stubs(tmp_path)


def test_the_stubs_lie_in_the_package() -> None:
    assert (GEN / "holdfast" / "node" / "v1" / "node_pb2.pyi").is_file()
