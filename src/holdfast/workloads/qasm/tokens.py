"""Cuts the text of a circuit into tokens, one at a time, as the OpenQASM 3 grammar does."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from holdfast.workloads.qasm.program import InvalidCircuit, UnknownSyntax

NAME, INTEGER, FLOAT, SIGN, END = "name", "integer", "float", "sign", "end"
BLANK: Final = r"(?:[ \t\r\n]++|//[^\r\n]*+|/\*(?s:.*?)\*/)*+"
"""What is between tokens."""
_TOKEN: Final = re.compile(
    BLANK + r"(?:(?P<name>[^\W\d]\w*+)"
    r"|(?P<float>(?:[0-9](?:_?[0-9])*)?\.(?:[0-9](?:_?[0-9])*)(?:[eE][-+]?[0-9](?:_?[0-9])*)?"
    r"|[0-9](?:_?[0-9])*(?:\.(?:[eE][-+]?[0-9](?:_?[0-9])*)?|[eE][-+]?[0-9](?:_?[0-9])*))"
    r"|(?P<integer>0[xX][0-9a-fA-F](?:_?[0-9a-fA-F])*|0o[0-7](?:_?[0-7])*|0[bB][01](?:_?[01])*|[0-9](?:_?[0-9])*)"
    r"|(?P<sign>\+\+|\*\*|->|<<|>>|/(?!\*)|[-+*%|&^~=:;,@()\[\]{}])"
    r"|(?P<end>\Z))"
)
_OPEN_COMMENT: Final = re.compile(BLANK + r"/\*")
_NEXT: Final = re.compile(BLANK + r"(?P<sign>.?)", re.DOTALL)
_NAME_CATEGORIES: Final = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nl"})
_KEYWORDS: Final = (
    "OPENQASM include defcalgrammar def cal defcal gate extern box let break continue if else end return for while in "
    "switch case default input output const readonly mutable qreg qubit creg bool bit int uint float angle complex "
    "array void duration stretch gphase inv pow ctrl negctrl durationof delay reset measure barrier true false im "
    "pragma opaque"
)
KEYWORDS: Final = frozenset(_KEYWORDS.split())
"""Words that name nothing."""


class Tokens:
    """A text's tokens: the current one, and where it begins and ends."""

    def __init__(self, text: str) -> None:
        self.source, self.at, self.end, self.before = text, 0, 0, 0
        """Where the token before the current one ended."""
        self.kind, self.text = SIGN, ""

    def advance(self) -> None:
        self.before = self.end
        match = _TOKEN.match(self.source, self.end)
        if match is None:
            raise self._unreadable()
        self.kind = match.lastgroup or END
        self.at, self.end = match.span(self.kind)
        self.text = match[self.kind]
        if self.kind == NAME:
            _check_name(self.text)

    def _unreadable(self) -> InvalidCircuit:
        comment = _OPEN_COMMENT.match(self.source, self.end)
        if comment is not None:
            self.at = comment.end() - 2
            return InvalidCircuit("a comment is not closed")
        sign = _NEXT.match(self.source, self.end)
        assert sign is not None
        self.at = sign.start("sign")
        return UnknownSyntax(f"{sign['sign']!r} is not understood")

    def take(self, text: str) -> bool:
        """Whether this sign or word was the current token; it is passed then."""
        if self.text != text:
            return False
        self.advance()
        return True

    def expect(self, text: str) -> None:
        if not self.take(text):
            raise self.unexpected(f"{text!r} is expected")

    def name(self) -> str:
        """The current token as a name, passed."""
        name = self.text
        if self.kind != NAME or name in KEYWORDS:
            raise self.unexpected("a name is expected")
        self.advance()
        return name

    def unexpected(self, why: str) -> UnknownSyntax:
        if self.kind == END:
            return UnknownSyntax("the last statement does not end with ';'")
        return UnknownSyntax(f"{self.text[:40]!r} is not understood here: {why}")


def _check_name(name: str) -> None:
    """Characters of all alphabets, `_`, and the digits 0 to 9."""
    if not name.isascii():
        for sign in name:
            if not sign.isascii() and unicodedata.category(sign) not in _NAME_CATEGORIES:
                raise UnknownSyntax(f"{sign!r} is not understood in a name")


def whole_number(text: str) -> int:
    """An integer token's value: decimal, hexadecimal, octal or binary, with underscores between digits."""
    digits = text.replace("_", "")
    if digits[1:2] in {"x", "X", "o", "b", "B"}:
        return int(digits, 0)
    return int(digits.lstrip("0")[:_DIGITS_MAX] or "0")


_DIGITS_MAX: Final = 40
"""A number with more is beyond every register: its value is not needed."""
