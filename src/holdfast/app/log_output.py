"""Where log lines go: to standard error, as text for people or as JSON for machines."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from typing import TextIO, cast

from holdfast.config import LogFormat, LogSettings


def configure_logging(log: LogSettings) -> None:
    """For this process; a child process calls it again."""
    import structlog  # noqa: PLC0415 - it imports rich, which takes longer than most verbs

    level = logging.getLevelNamesMapping()[log.level.upper()]
    has_colours = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    text = structlog.dev.ConsoleRenderer(colors=has_colours)
    renderer = structlog.processors.JSONRenderer() if log.format is LogFormat.JSON else text
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, LossyStderr())),
    )


class LossyStderr:
    """Standard error that may be closed or on a full disk: then a log line is lost, and the work goes on."""

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.flush()
