"""`holdfast job cancel | raise-fee`: change a job that is not finished."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.job.show import JobArgument
from holdfast.cli.terminal.node_client import NodeAddress, call_node
from holdfast.cli.terminal.options import Ca, Data, TokenFile, Url
from holdfast.cli.terminal.tables import repeat_note


def cancel(
    task_id: JobArgument, data: Data = None, url: Url = None, token_file: TokenFile = None, ca: Ca = None
) -> None:
    """Cancel a job; its reservation is refunded in the open block."""
    answer = call_node(NodeAddress(data, url, token_file, ca), "cap.cancel", task_id=task_id)
    print(f"cancelled (event {answer['event']}); the money is available again when the block is final")


def raise_fee(
    task_id: JobArgument,
    max_fee: Annotated[int, typer.Argument(metavar="MAX_FEE", min=1, help="The new maximum fee.")],
    data: Data = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca: Ca = None,
) -> None:
    """Raise a job's maximum fee, which moves it forward in the queue."""
    answer = call_node(NodeAddress(data, url, token_file, ca), "cap.raiseFee", task_id=task_id, max_fee=max_fee)
    print(f"its maximum fee is {max_fee} now ({repeat_note(answer)})")
