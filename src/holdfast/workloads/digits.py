"""`digits`: a handwritten digit of 8 × 8 points recognised by a small integer network.

One layer: each digit has a weight of 1 or -1 for each point, by the glyph below; ink counts 1, paper -1. So a score is
64 less twice the number of points that differ, and the nearest glyph has the best score. There are no fractions, no
rounding and no libraries: the bytes are the same everywhere.
"""

from __future__ import annotations

from typing import Final

from holdfast.core.base.canonical import canonical
from holdfast.core.job.spec import Payload
from holdfast.workloads.invalid_input import InvalidJobInput

SIDE: Final = 8
PICTURE_CHARACTERS_MAX: Final = 4_096
"""With all blanks; longer ones are not admitted."""
INK, PAPER = "#", "."
GLYPHS: Final = """
..####.. ...##... ..####.. .#####.. ....##.. .######. ...###.. .######. ..####.. ..####..
.#....#. ..###... .#....#. ......#. ...#.#.. .#...... ..#..... ......#. .#....#. .#....#.
.#...##. .#.##... ......#. ......#. ..#..#.. .#...... .#...... .....#.. .#....#. .#....#.
.#..#.#. ...##... ....##.. ..####.. .#...#.. .#####.. .#...... ....#... ..####.. ..#####.
.#.#..#. ...##... ...#.... ......#. ######## ......#. .#.###.. ...#.... .#....#. ......#.
.##...#. ...##... ..#..... ......#. .....#.. ......#. .##...#. ..#..... .#....#. ......#.
.#....#. ...##... .#...... ......#. .....#.. .#....#. .#....#. ..#..... .#....#. .....#..
..####.. .######. .######. .#####.. .....#.. ..####.. ..####.. ..#..... ..####.. ..###...
"""


def glyph(digit: int) -> str:
    """The glyph of a digit: 64 signs, row by row."""
    return "".join(line.split()[digit] for line in GLYPHS.strip().splitlines())


def recognise(payload: Payload) -> bytes:
    """The digit that the picture shows, its margin over the second best, and all scores."""
    spec = payload.spec
    scores = scores_of(parse_picture(spec["prompt"] if spec.get("prompt") is not None else spec["input"]))
    best, second = sorted(scores, reverse=True)[:2]
    return canonical({"digit": scores.index(best), "margin": best - second, "scores": scores})


def picture_fault(text: str) -> str | None:
    """JOB-003: what is wrong with a picture; None where it can be recognised."""
    if len(text) > PICTURE_CHARACTERS_MAX:
        return f"{len(text)} characters, at most {PICTURE_CHARACTERS_MAX}"
    try:
        parse_picture(text)
    except InvalidJobInput as fault:
        return str(fault)
    return None


def parse_picture(text: str) -> str:
    """64 signs of ink and paper; blanks and line ends between them are ignored."""
    signs = "".join(text.split())
    if len(signs) != SIDE * SIDE or set(signs) - {INK, PAPER}:
        raise InvalidJobInput(f"a picture is {SIDE} lines of {SIDE} signs, {INK!r} for ink and {PAPER!r} for paper")
    return signs


def scores_of(signs: str) -> list[int]:
    inputs = [1 if sign == INK else -1 for sign in signs]
    return [sum(weight * point for weight, point in zip(row, inputs, strict=True)) for row in _WEIGHTS]


_WEIGHTS: Final = [[1 if sign == INK else -1 for sign in glyph(digit)] for digit in range(10)]
