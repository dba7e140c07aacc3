"""`holdfast job cancel | raise-fee`: change a job that is not finished."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.job.show import JobArgument
from holdfast.cli.terminal.node_client import call_node
from holdfast.cli.terminal.options import Json, NodeAddress, on_node
from holdfast.cli.terminal.tables import print_outcome, repeat_note


@on_node
def cancel(address: NodeAddress, task_id: JobArgument, as_json: Json = False) -> None:
    """Cancel a job; its reservation is refunded in the open block."""
    answer = call_node(address, "cap.cancel", task_id=task_id)
    outcome = f"cancelled ({repeat_note(answer)}); the money is available again when the block is final"
    print_outcome(answer, outcome, as_json=as_json)


@on_node
def raise_fee(
    address: NodeAddress,
    task_id: JobArgument,
    max_fee: Annotated[int, typer.Argument(metavar="MAX_FEE", min=1, help="The new maximum fee.")],
    as_json: Json = False,
) -> None:
    """Raise a job's maximum fee, which moves it forward in the queue."""
    answer = call_node(address, "cap.raiseFee", task_id=task_id, max_fee=max_fee)
    print_outcome(answer, f"its maximum fee is {max_fee} now ({repeat_note(answer)})", as_json=as_json)
