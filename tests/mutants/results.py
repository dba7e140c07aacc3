"""Seeded faults in resolving, reading and consuming results."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

READABILITY, DECIDE, APPLY = (f"core/result/{name}.py" for name in ("readability", "decide", "apply"))
PATH_TESTS, CONSUME_TESTS, STORY = (
    "tests/core/test_job_to_result.py",
    "tests/core/result/test_consume.py",
    "tests/stories/lives/test_result_lives.py",
)

RESULTS: Final = [
    Mutant(
        "a result is readable in its own block",
        READABILITY,
        "    if result.height_resolved == open_height:\n",
        "    if False:\n",
        f"{PATH_TESTS} -k from_the_block_after",
    ),
    Mutant(
        "a result is readable before the height its receipt promised",
        READABILITY,
        "    if open_height >= earliest:\n        return None\n",
        "    if True:\n        return None\n",
        f"{CONSUME_TESTS} -k below_the_receipt",
    ),
    Mutant(
        "a second transaction consumes a result",
        DECIDE,
        '        return _refuse_consumed(command.task_id, f"in {block}")\n',
        "        pass\n",
        f"{CONSUME_TESTS} -k consumed_once_in",
    ),
    Mutant(
        "a final consumption is forgotten",
        APPLY,
        "            state.claims.add(consumption_key(",
        "            (lambda *_: None)(consumption_key(",
        f"{CONSUME_TESTS} -k only_a_row",
    ),
    Mutant(
        "a consumption stays although a reorg removed its result",
        "core/workflows/roll_back.py",
        "        if not is_valid_above(state, consumption, head)\n",
        "        if False\n",
        f"{CONSUME_TESTS} -k takes_the_result_too",
    ),
    Mutant(
        "a consumption that was rolled back is not applied again",
        APPLY,
        "            _move_consumption(state, consumption, state.open_height)\n",
        "            pass\n",
        f"{CONSUME_TESTS} -k sets_it_again",
    ),
    Mutant(
        "the link of a task to its nullifier is not stored",
        "core/proof/apply.py",
        "            claim(link_key(event.task_id), number, TaskLinked(event.task_id, event.link))\n",
        "            pass\n",
        f"{STORY} -k counts_once",
    ),
]
