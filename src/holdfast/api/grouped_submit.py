"""Commands of concurrent calls as one group: what is asked for in one turn of the event loop is decided together.

A batch of JSON-RPC and callers that were just answered come back in the same turn: the engine gets one run of commands
instead of many runs of one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from holdfast.core.base.event import Command
from holdfast.engine.outcome import Outcome

SubmitMany = Callable[[Sequence[Command]], Awaitable[list[Outcome]]]


class GroupedSubmit:
    """Submits for one event loop. Each command is accepted or refused on its own."""

    def __init__(self, submit_many: SubmitMany) -> None:
        self._submit_many = submit_many
        self._waiting: list[tuple[Command, asyncio.Future[Outcome]]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, command: Command) -> Outcome:
        """The outcome of this command, when it is durable."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Outcome] = loop.create_future()
        self._waiting.append((command, outcome))
        if len(self._waiting) == 1:
            loop.call_soon(self._start)
        return await outcome

    def _start(self) -> None:
        waiting, self._waiting = self._waiting, []
        task = asyncio.create_task(self._submit(waiting), name="grouped submit")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _submit(self, waiting: list[tuple[Command, asyncio.Future[Outcome]]]) -> None:
        """A caller that went away is not answered; its command is submitted all the same."""
        try:
            outcomes = await self._submit_many([command for command, _ in waiting])
        except Exception as fault:
            for _, outcome in waiting:
                if not outcome.done():
                    outcome.set_exception(fault)
            return
        for (_, outcome), decided in zip(waiting, outcomes, strict=True):
            if not outcome.done():
                outcome.set_result(decided)
