"""The two threads of an open spool: they wait, and run the steps of writer and maintainer."""

from __future__ import annotations

import logging
import threading
from typing import Final

from holdfast.core.base.errors import Unavailable
from holdfast.spool.maintainer import Maintainer
from holdfast.spool.outbox import Outbox
from holdfast.spool.writer import Writer

RETRY_S: Final = 1.0
_log = logging.getLogger("holdfast.spool")


class SpoolThreads:
    """Started and ended with the spool."""

    def __init__(self, outbox: Outbox, writer: Writer, maintainer: Maintainer, name: str) -> None:
        self._outbox, self._writer, self._maintainer, self._is_ending = outbox, writer, maintainer, False
        # Daemon threads: a process that does not close its spool must still be able to end.
        self._threads = [
            threading.Thread(target=self._write, name=f"spool-writer-{name}", daemon=True),
            threading.Thread(target=self._maintain, name=f"spool-maintainer-{name}", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Return when both threads have ended, after the step they are in."""
        self._is_ending = True
        self._outbox.writer_wakeup.notify()
        self._outbox.maintainer_wakeup.notify()
        for thread in self._threads:
            thread.join()

    def _write(self) -> None:
        writer, wakeup = self._writer, self._outbox.writer_wakeup
        try:
            while not self._is_ending:
                if writer.due_in_ms() == 0:
                    writer.step()
                    continue
                wakeup.is_waiting = True
                # An emitter reads `is_waiting` after it has queued its record: after this second check none is missed.
                due_ms = writer.due_in_ms()
                if due_ms != 0 and not self._is_ending:
                    wakeup.wait(None if due_ms is None else due_ms / 1_000)
                wakeup.is_waiting = False
        except BaseException as fault:
            _log.exception("writer_failed")
            writer.end(Unavailable("SP-CRASH-003", f"the writer failed: {fault}"))

    def _maintain(self) -> None:
        maintainer, wakeup = self._maintainer, self._outbox.maintainer_wakeup
        while not self._is_ending:
            has_succeeded = True
            if maintainer.has_work() or maintainer.is_full:
                try:
                    has_succeeded = maintainer.step()
                except Exception:
                    _log.exception("maintainer_failed")
                    has_succeeded = False
            if not maintainer.has_work() or not has_succeeded:
                # A full channel is checked again without a wakeup: others, or an operator, may have freed space.
                ack_due_ms = maintainer.ack_due_in_ms()
                pause_s = None if ack_due_ms is None else max(ack_due_ms, 1) / 1_000
                wakeup.wait(pause_s if has_succeeded and not maintainer.is_full else RETRY_S)
