"""The two threads of an open spool: they wait, and run the steps of writer and maintainer."""

from __future__ import annotations

import logging
import threading
from typing import Final, Protocol

from holdfast.core.base.errors import Unavailable
from holdfast.spool.maintainer import Maintainer
from holdfast.spool.outbox import Outbox
from holdfast.spool.wakeup import Wakeup

RETRY_S: Final = 1.0
_log = logging.getLogger("holdfast.spool")


class StepWorker(Protocol):
    """The writer of a session of ours, or the follower of another program's."""

    def due_in_ms(self) -> int | None: ...
    def step(self) -> bool: ...
    def end(self, fault: Unavailable) -> None: ...


class SpoolThreads:
    """Started and ended with the spool."""

    def __init__(self, outbox: Outbox, writer: StepWorker, maintainer: Maintainer, name: str) -> None:
        self._outbox, self._writer, self._maintainer, self._is_ending = outbox, writer, maintainer, False
        self._is_quiet = False
        """Nothing came during a whole interval."""
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
                self._wait_for_work(writer, wakeup)
        except BaseException as fault:
            _log.exception("writer_failed")
            writer.end(Unavailable("SP-CRASH-003", f"the writer failed: {fault}"))

    def _wait_for_work(self, writer: StepWorker, wakeup: Wakeup) -> None:
        """Between commits no longer than a commit may wait: so the first record need not notify. Idle: for ever.

        An emitter reads the flags after it has queued its record: after the check that follows a flag none is missed.
        """
        wakeup.is_waiting = True
        due_ms = writer.due_in_ms()
        if due_ms is None and self._is_quiet:
            wakeup.is_idle = True
            if writer.due_in_ms() is None and not self._is_ending:
                wakeup.wait(None)
            wakeup.is_idle = self._is_quiet = False
        elif due_ms != 0 and not self._is_ending:
            wakeup.wait((self._outbox.flush_interval_ms if due_ms is None else due_ms) / 1_000)
            self._is_quiet = due_ms is None and writer.due_in_ms() is None
        wakeup.is_waiting = False

    def _maintain(self) -> None:
        maintainer, wakeup = self._maintainer, self._outbox.maintainer_wakeup
        while not self._is_ending:
            has_succeeded = True
            if self._outbox.needs_memory:
                self._outbox.prepare_memory()
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
