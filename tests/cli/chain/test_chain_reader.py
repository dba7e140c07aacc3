"""A chain that is rolled back while it is read: reported by name, so that it is read again, never a traceback."""

from __future__ import annotations

from typing import Any, cast

import pytest

from holdfast.cli.chain.reader import ChainReader
from holdfast.core.base.values import Height
from holdfast.core.chain.header import SignedHeader
from holdfast.lightclient.headers import VerificationFailed


class Orphaned:
    """A node whose block 3 was rolled back a moment ago."""

    async def call(self, method: str, **_: object) -> Any:
        assert method == "chain.listBlocks"
        return {"rows": [{"event": 9, "height": 3, "status": "ORPHANED"}], "next_after": None}


@pytest.mark.rule("CHN-003")
async def test_a_block_that_is_rolled_back_while_the_chain_is_read_is_reported_by_name() -> None:
    reader = ChainReader(Orphaned(), cast(SignedHeader, None), cast(SignedHeader, None), Height(0))
    with pytest.raises(VerificationFailed, match="block 3 was rolled back"):
        await anext(reader.blocks_after(Height(3)))
