"""One table from every kind of no to every protocol: JSON-RPC code, HTTP status, gRPC status, exit code."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.refusal import Corrupt, Refused, Unavailable


class Answer(msgspec.Struct, frozen=True):
    """How one named error looks on each protocol."""

    rpc: int
    http: int
    grpc: str
    exit: int


ANSWERS: Final = {
    # JSON-RPC's own
    "ParseError": Answer(-32700, 400, "INVALID_ARGUMENT", 2),
    "InvalidRequest": Answer(-32600, 400, "INVALID_ARGUMENT", 2),
    "MethodNotFound": Answer(-32601, 404, "UNIMPLEMENTED", 2),
    "InvalidParams": Answer(-32602, 400, "INVALID_ARGUMENT", 2),
    "Internal": Answer(-32603, 500, "INTERNAL", 70),
    # Refused: the request was understood and a rule says no
    "Refused": Answer(-32000, 409, "FAILED_PRECONDITION", 1),
    "NotFound": Answer(-32001, 404, "NOT_FOUND", 1),
    "InsufficientFunds": Answer(-32002, 402, "FAILED_PRECONDITION", 1),
    "IdReused": Answer(-32003, 409, "ALREADY_EXISTS", 1),
    "QueueFull": Answer(-32004, 503, "RESOURCE_EXHAUSTED", 75),
    "BackPressure": Answer(-32005, 503, "RESOURCE_EXHAUSTED", 75),
    "NoResultYet": Answer(-32006, 409, "FAILED_PRECONDITION", 1),
    "Expired": Answer(-32007, 410, "FAILED_PRECONDITION", 1),
    "ResultPruned": Answer(-32008, 410, "NOT_FOUND", 1),
    "AlreadyConsumed": Answer(-32013, 409, "ALREADY_EXISTS", 1),
    "ProofConflict": Answer(-32014, 409, "ALREADY_EXISTS", 1),
    "ChainMismatch": Answer(-32015, 409, "FAILED_PRECONDITION", 1),
    "HeightMismatch": Answer(-32016, 409, "FAILED_PRECONDITION", 1),
    "LeaseLost": Answer(-32030, 409, "FAILED_PRECONDITION", 1),
    "NullifierReuse": Answer(-32031, 409, "ALREADY_EXISTS", 1),
    "EvidenceGap": Answer(-32032, 409, "OUT_OF_RANGE", 1),
    "SequenceConflict": Answer(-32050, 409, "ALREADY_EXISTS", 1),
    "DeadLettersFull": Answer(-32051, 503, "RESOURCE_EXHAUSTED", 75),
    "EvidencePruned": Answer(-32052, 410, "NOT_FOUND", 1),
    "NotSealed": Answer(-32009, 409, "FAILED_PRECONDITION", 1),
    "BadConfig": Answer(-32012, 400, "INVALID_ARGUMENT", 2),
    # an outbox says no
    "BadId": Answer(-32040, 400, "INVALID_ARGUMENT", 2),
    "SessionLocked": Answer(-32041, 409, "FAILED_PRECONDITION", 75),
    "SessionDamaged": Answer(-32042, 409, "DATA_LOSS", 1),
    "SessionFinished": Answer(-32043, 409, "FAILED_PRECONDITION", 1),
    "SessionEnded": Answer(-32044, 409, "FAILED_PRECONDITION", 1),
    "SpoolFull": Answer(-32045, 503, "RESOURCE_EXHAUSTED", 75),
    "SpoolClosed": Answer(-32046, 409, "FAILED_PRECONDITION", 1),
    "AckAhead": Answer(-32047, 409, "OUT_OF_RANGE", 1),
    "AckGap": Answer(-32048, 409, "OUT_OF_RANGE", 1),
    "NotFinal": Answer(-32049, 409, "FAILED_PRECONDITION", 1),
    "NotSpoken": Answer(-32053, 409, "FAILED_PRECONDITION", 1),
    # who asks, and how much
    "Unauthorized": Answer(-32020, 401, "UNAUTHENTICATED", 77),
    "KeyExpired": Answer(-32021, 401, "UNAUTHENTICATED", 77),
    "KeyRevoked": Answer(-32022, 401, "UNAUTHENTICATED", 77),
    "Forbidden": Answer(-32023, 403, "PERMISSION_DENIED", 77),
    "AttestationRefused": Answer(-32026, 403, "PERMISSION_DENIED", 77),
    "RateLimited": Answer(-32024, 429, "RESOURCE_EXHAUSTED", 75),
    "TooLarge": Answer(-32025, 413, "RESOURCE_EXHAUSTED", 2),
    # the world or the store said no
    "Unavailable": Answer(-32010, 503, "UNAVAILABLE", 75),
    "Corrupt": Answer(-32011, 500, "DATA_LOSS", 74),
}


RESULTS: Final = frozenset(
    {
        "NoResultYet",
        "Expired",
        "ResultPruned",
        "ProofConflict",
        "NullifierReuse",
        "ChainMismatch",
        "AlreadyConsumed",
        "NotFound",
    }
)
"""RES-007: what can be said about a result. The command line says these names, too."""


class Problem(msgspec.Struct, frozen=True):
    """A no, ready to be told: the same name, rule, sentence and hint on every protocol."""

    name: str
    rule: str
    says: str
    hint: str = ""
    about: tuple[tuple[str, str], ...] = ()

    @property
    def answer(self) -> Answer:
        return ANSWERS[self.name]

    def __str__(self) -> str:
        said = f"{self.rule}: {self.says}" if self.rule else self.says
        return f"{said} ({self.hint})" if self.hint else said


def problem_of(no: Refused | Exception) -> Problem:
    """What to tell about a refusal or an error; an unforeseen one gives nothing of its inside away."""
    match no:
        case Refused(rule, says, hint, name, about):
            return Problem(name, rule, says, hint, about)
        case Unavailable():
            return Problem("Unavailable", no.rule, no.says, no.hint)
        case Corrupt():
            return Problem("Corrupt", no.rule, no.says, no.hint)
    return Problem("Internal", "", "the node failed inside", "its log has the details")
