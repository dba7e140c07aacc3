"""Labels on the command line: what providers declare and jobs require (MAT-002)."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.base.errors import Refused


def parse_labels(given: Sequence[str]) -> dict[str, str] | Refused:
    """`name=value`, each name once."""
    labels: dict[str, str] = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or not name or not value or name in labels:
            message = f"--label: {text!r:.80} is not NAME=VALUE, each name once"
            return Refused("MAT-002", message, "--label gpu=a100", "InvalidParams")
        labels[name] = value
    return labels
