"""A chain read over a door while blocks are taken back: named, so that it is read again, never a stack trace."""

from __future__ import annotations

from typing import Any, cast

import pytest

from holdfast.cli.asking import Asked
from holdfast.cli.chain.reading import ChainReader
from holdfast.core.chain.header import Signed
from holdfast.core.values import ChainId, Height
from holdfast.engine.headers import Untrue


class Orphaned:
    """A node whose block 3 was taken back a moment ago."""

    async def call(self, method: str, **_: object) -> Any:
        assert method == "chain.list"
        return {"rows": [{"event": 9, "height": 3, "status": "ORPHANED"}], "next_after": None}


@pytest.mark.rule("CHN-003")
async def test_a_block_that_is_taken_back_while_the_chain_is_read_has_a_name() -> None:
    reader = ChainReader(cast(Asked, Orphaned()), ChainId(1337), cast(Signed, None), Height(0))
    with pytest.raises(Untrue, match="block 3 was taken back"):
        await anext(reader.after(Height(3)))
