"""Seeded faults in resolving, reading and using results; `tests/storage/test_result_life.py` sees them, too."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

READ, USE, RESOLVE = "core/result/read.py", "core/result/consume.py", "core/result/apply.py"
WAY, CONSUME, STORY = "tests/core/test_whole_way.py", "tests/core/test_consume.py", "tests/stories/test_results.py"

RESULTS: Final = [
    Mutant(
        "a result is readable in its own block",
        READ,
        "    if result.height_resolved >= open_height:\n",
        "    if result.height_resolved > open_height:\n",
        f"{WAY} -k from_the_block_after",
    ),
    Mutant(
        "a result is read before its receipt allows it",
        READ,
        "    if open_height >= earliest:\n        return None\n",
        "    if True:\n        return None\n",
        f"{CONSUME} -k below_the_receipt",
    ),
    Mutant(
        "a second transaction uses a result again",
        USE,
        '        return _already(command.task_id, f"in block {live.height}")\n',
        "        pass\n",
        f"{CONSUME} -k consumed_once_in",
    ),
    Mutant(
        "a use that is final is forgotten",
        USE,
        "    state.claims.add(consumption_key(mark.task_id), mark.event, claimed(told))\n",
        "    pass\n",
        f"{CONSUME} -k only_a_row",
    ),
    Mutant(
        "a use counts though a reorg took its result",
        USE,
        "        if each.height > to and not _counts_above(state, each, to)\n",
        "        if False\n",
        f"{CONSUME} -k takes_the_result_too",
    ),
    Mutant(
        "a use that was taken back does not count again",
        USE,
        "        mark.height = state.open_height\n",
        "        pass\n",
        f"{CONSUME} -k sets_it_again",
    ),
    Mutant(
        "a task's link to its proof is not kept",
        RESOLVE,
        "        state.claims.add(link_key(event.task_id), state.last_event, TaskLinked(event.task_id, event.link))\n",
        "        pass\n",
        f"{STORY} -k counts_once",
    ),
]
