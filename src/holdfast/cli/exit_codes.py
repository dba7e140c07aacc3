"""Every exit code of the command line and what it means: the one table, which docs/how-to/operator.md repeats."""

from __future__ import annotations

from typing import Final

DONE, REFUSED, BAD_INPUT, INVALID_JOB_INPUT = 0, 1, 2, 65
INTERNAL, DAMAGED, UNAVAILABLE, DENIED, INTERRUPTED = 70, 74, 75, 77, 130
EXIT_CODES: Final = {
    DONE: "done, or true",
    REFUSED: "refused by a rule, false, or something needs attention; the message says what to do",
    BAD_INPUT: "bad usage: an option, an argument, a setting or a file cannot be used",
    INVALID_JOB_INPUT: "`job run`, `wait` and `again`: the job's program cannot use its input",
    INTERNAL: "a fault of Holdfast itself: the node's log has more",
    DAMAGED: "stored data contradicts itself: `holdfast db check` names the place",
    UNAVAILABLE: "not now: the node, the store or the place in the queue is not available; try again",
    DENIED: "the key is missing, has expired, or may not do this",
    INTERRUPTED: "interrupted by Ctrl-C; what was accepted goes on",
}
"""`holdfast spool` needs no node and uses the first three: 1 is not intact or not delivered, 2 cannot be read."""


def exit_code_table() -> str:
    """As docs/how-to/operator.md has it."""
    rows = [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    return "\n".join(["| exit code | meaning |", "|---|---|", *rows])
