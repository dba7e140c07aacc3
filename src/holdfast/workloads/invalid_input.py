"""What an executor raises where the job itself is the fault (JOB-012)."""

from __future__ import annotations


class InvalidJobInput(ValueError):
    """No provider can compute this input; the message says why."""
