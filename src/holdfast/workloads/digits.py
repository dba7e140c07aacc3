"""`digits`: a handwritten digit of 8 × 8 points recognised by a small integer network.

One layer: for each digit a weight of 1 or -1 a point, after the glyph below; ink counts 1, paper -1. So a score is 64
less twice the number of points that differ, and the best one is that of the nearest glyph. No fraction, no rounding, no
library: the same bytes everywhere.
"""

from __future__ import annotations

from typing import Final

from holdfast.core.canon import canonical
from holdfast.core.job.spec import Payload

SIDE: Final = 8
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
    """A digit as it is taught: 64 signs, row by row."""
    return "".join(line.split()[digit] for line in GLYPHS.strip().splitlines())


def recognise(payload: Payload) -> bytes:
    """Which digit the picture shows, by how much it wins, and all scores."""
    spec = payload.spec
    scores = scores_of(picture(spec["prompt"] if spec.get("prompt") is not None else spec["input"]))
    best, second = sorted(scores, reverse=True)[:2]
    return canonical({"digit": scores.index(best), "margin": best - second, "scores": scores})


def picture(text: str) -> str:
    """64 signs of ink and paper; blanks and line ends between them do not count."""
    signs = "".join(text.split())
    if len(signs) != SIDE * SIDE or set(signs) - {INK, PAPER}:
        raise ValueError(f"a picture is {SIDE} lines of {SIDE} signs, {INK!r} for ink and {PAPER!r} for paper")
    return signs


def scores_of(signs: str) -> list[int]:
    inputs = [1 if sign == INK else -1 for sign in signs]
    return [sum(weight * point for weight, point in zip(row, inputs, strict=True)) for row in _WEIGHTS]


_WEIGHTS: Final = [[1 if sign == INK else -1 for sign in glyph(digit)] for digit in range(10)]
