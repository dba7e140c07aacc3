"""Functions that run in a child process: called over a pipe, killed at any time, its death noticed.

A call returns one value. A function that runs for long can be begun instead: it gets the child's end of the pipe, and
both sides send messages until it returns or one of them hangs up.

Functions, arguments and results are pickled. A signal that the terminal or a service manager sends to the whole group
is for the parent to handle: the child ignores it from its first moment on.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import send_handle
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, TypeVar

StartMethod = Literal["spawn", "forkserver"]
"""Never `fork`: it would copy the locks of the parent's threads. `forkserver` starts the second child faster."""
Setup = Callable[[], None]
"""Runs in the child before the first call."""
T = TypeVar("T")

GROUP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
EXIT_WAIT_S: Final = 10.0
"""How long a child that has closed its pipe may take to end: only then its exit code is known."""
_READY: Final = "ready"
OWN_PIPE: Final = "<own pipe>"
"""As an argument of `begin`: the child's end of the pipe."""


class ChildEnded(Exception):
    """The child ended before it answered. `exit_code` is negative where a signal ended it, None where it never ran."""

    def __init__(self, exit_code: int | None) -> None:
        super().__init__(_describe_exit(exit_code))
        self.exit_code = exit_code


class CallFailed(Exception):
    """The function raised in the child: the exception's type and message."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}" if message else kind)
        self.kind, self.message = kind, message


class CallTimedOut(Exception):
    """The child did not answer in time. It is still running."""


class _Returned(NamedTuple):
    """How a function ended in the child: what it returned, or the type and message of what it raised."""

    is_returned: bool
    value: Any


class ChildProcess:
    """One child. `kill` may be called from any thread, all other methods from one thread at a time."""

    def __init__(
        self, method: StartMethod, setup: Setup | None = None, *, ignored: tuple[signal.Signals, ...] = GROUP_SIGNALS
    ) -> None:
        self._context = multiprocessing.get_context(method)
        self._setup, self._ignored = setup, ignored
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None
        self._is_killed = False
        self._lock = threading.Lock()

    def start(self, timeout_s: float | None = None) -> None:
        """Return when the child accepts calls. OSError where it cannot be started."""
        pipe, child_pipe = self._context.Pipe()
        self._pipe = pipe
        process = self._context.Process(  # type: ignore[attr-defined]
            target=_serve, args=(child_pipe, self._setup, self._ignored), daemon=True
        )
        try:
            with self._lock:
                if self._is_killed:
                    raise ChildEnded(None)
                _start_blocking(process, self._ignored)
                self._process = process
        finally:
            child_pipe.close()
        if self._receive(pipe, timeout_s) != _READY:
            raise ChildEnded(None)

    def call(self, function: Callable[..., T], *args: object, timeout_s: float | None = None) -> T:
        """What the function returns in the child. ChildEnded, CallFailed or CallTimedOut where it does not return."""
        pipe = self._pipe
        if pipe is None:
            raise ChildEnded(None)
        try:
            pipe.send((function, args))
        except OSError as fault:
            raise ChildEnded(self._wait_exit()) from fault
        answer = self._receive(pipe, timeout_s)
        if answer.is_returned:
            return answer.value  # type: ignore[no-any-return]
        raise CallFailed(*answer.value)

    def begin(self, function: Callable[..., object], *args: object) -> None:
        """Let the function run in the child; it may send messages on the pipe that it gets for `OWN_PIPE`."""
        self.send((function, args))

    def send(self, message: object) -> None:
        """Send a message to a function that was begun. OSError where the child is gone."""
        if self._pipe is None:
            raise BrokenPipeError
        self._pipe.send(message)

    def send_descriptor(self, descriptor: int) -> None:
        """Give a copy of this descriptor to a function that was begun: it takes it by `recv_handle`."""
        if self._pipe is None or self.process_id is None:
            raise BrokenPipeError
        send_handle(self._pipe, descriptor, self.process_id)

    def take_message(self) -> Any | None:
        """The next message of a function that was begun, None where there is none now.

        ChildEnded where the child is gone or the function returned, CallFailed where it raised.
        """
        pipe = self._pipe
        if pipe is None:
            raise ChildEnded(None)
        try:
            if not pipe.poll():
                return None
            message = pipe.recv()
        except (EOFError, OSError) as fault:
            raise ChildEnded(self._wait_exit()) from fault
        if not isinstance(message, _Returned):
            return message
        if not message.is_returned:
            raise CallFailed(*message.value)
        raise ChildEnded(0)

    def fileno(self) -> int:
        """Of the pipe: readable when a message waits."""
        if self._pipe is None:
            raise ChildEnded(None)
        return self._pipe.fileno()

    def hang_up(self) -> None:
        """Close the pipe: a child that is not in a call ends."""
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None

    def join(self, timeout_s: float) -> None:
        """Wait until the child has ended, at most so long."""
        if self._process is not None:
            self._process.join(timeout_s)

    @property
    def process_id(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def run(self, function: Callable[..., T], *args: object) -> T:
        """Start the child, make one call, end the child."""
        with self:
            self.start()
            return self.call(function, *args)

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.is_alive()

    def kill(self) -> None:
        """End the child now, or keep it from starting. A call that is running gets ChildEnded."""
        with self._lock:
            self._is_killed = True
            if self._process is not None:
                self._process.kill()

    def close(self) -> None:
        """Kill the child; when this returns it is gone."""
        with self._lock:
            self._is_killed = True
            process, self._process = self._process, None
            if process is not None:
                process.kill()
        if process is not None:
            process.join()
            process.close()
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None

    def __enter__(self) -> ChildProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def _receive(self, pipe: Connection, timeout_s: float | None) -> Any:
        try:
            if not pipe.poll(timeout_s):
                raise CallTimedOut
            return pipe.recv()
        except (EOFError, OSError) as fault:
            raise ChildEnded(self._wait_exit()) from fault

    def _wait_exit(self) -> int | None:
        if self._process is None:
            return None
        self._process.join(EXIT_WAIT_S)
        return self._process.exitcode


def _start_blocking(process: BaseProcess, signals: tuple[signal.Signals, ...]) -> None:
    """The child inherits the blocked signals, so that none reaches it before it ignores them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _describe_exit(exit_code: int | None) -> str:
    if exit_code is None:
        return "its process is gone"
    if exit_code < 0:
        return f"its process was ended by {signal.Signals(-exit_code).name}"
    return f"its process ended with {exit_code}"


# ------------------------------------------------------------------------------------------------ in the child


CALL_PARTS: Final = 2
"""A function and its arguments."""


def exit_with_parent() -> None:
    """A setup: the child ends as soon as its parent does, also in the middle of a call."""
    threading.Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _serve(pipe: Connection, setup: Setup | None, ignored: tuple[signal.Signals, ...]) -> None:
    """Answer calls until the parent closes the pipe."""
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # a fork server may have been started with more of them blocked
    if setup is not None:
        setup()
    with suppress(EOFError, OSError):  # the parent closed the pipe, or is gone
        pipe.send(_READY)
        while True:
            message = pipe.recv()
            if _is_call(message):  # else it was sent to a function that used the pipe, and has ended meanwhile
                _answer(pipe, *message)


def _is_call(message: object) -> bool:
    return isinstance(message, tuple) and len(message) == CALL_PARTS and callable(message[0])


def _answer(pipe: Connection, function: Callable[..., object], args: tuple[object, ...]) -> None:
    try:
        pipe.send(_Returned(True, function(*(pipe if arg == OWN_PIPE else arg for arg in args))))
    except Exception as fault:  # of the function, or of pickling what it returned
        pipe.send(_Returned(False, (type(fault).__name__, str(fault))))
