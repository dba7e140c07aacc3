"""The two threads of an open spool: they sleep, and let writer and keeper take their steps."""

from __future__ import annotations

import logging
import threading
from typing import Final

from holdfast.core.refusal import Unavailable
from holdfast.spool.keeper import Keeper
from holdfast.spool.outbox import Outbox
from holdfast.spool.writer import Writer

RETRY_S: Final = 1.0
_log = logging.getLogger("holdfast.spool")


class Workers:
    """Started with the spool, ended with it."""

    def __init__(self, outbox: Outbox, writer: Writer, keeper: Keeper, name: str) -> None:
        self._outbox, self._writer, self._keeper, self._is_ending = outbox, writer, keeper, False
        # A process that forgets to close its spool must still be able to end; tickets say what was durable.
        self._threads = [
            threading.Thread(target=self._write, name=f"spool-writer-{name}", daemon=True),
            threading.Thread(target=self._keep, name=f"spool-keeper-{name}", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Return when both threads have ended. What is in a step finishes it."""
        self._is_ending = True
        self._outbox.writer.give()
        self._outbox.keeper.give()
        for thread in self._threads:
            thread.join()

    def _write(self) -> None:
        writer, signal = self._writer, self._outbox.writer
        try:
            while not self._is_ending:
                if writer.due_in_ms() == 0:
                    writer.step()
                    continue
                signal.is_awaited = True
                # An emitter looks at `is_awaited` after it has put its record; so after this look none is missed.
                due_ms = writer.due_in_ms()
                if due_ms != 0 and not self._is_ending:
                    signal.await_(None if due_ms is None else due_ms / 1_000)
                signal.is_awaited = False
        except BaseException as fault:
            _log.exception("the spool's writer failed")
            writer.end(Unavailable("SP-CRASH-003", f"the writer failed: {fault}"))

    def _keep(self) -> None:
        keeper, signal = self._keeper, self._outbox.keeper
        while not self._is_ending:
            went_well = True
            if keeper.has_work() or keeper.is_full:
                try:
                    went_well = keeper.step()
                except Exception:
                    _log.exception("the spool's keeper failed")
                    went_well = False
            if not keeper.has_work() or not went_well:
                # A full channel is looked at again by itself: others, or an operator, may have made room.
                signal.await_(None if went_well and not keeper.is_full else RETRY_S)
