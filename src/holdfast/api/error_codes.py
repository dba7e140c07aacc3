"""One table from every kind of error to every protocol: JSON-RPC code, HTTP status, gRPC status, exit code."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.base.errors import Corrupt, Refused, Unavailable


class ErrorCodes(msgspec.Struct, frozen=True):
    """How one named error looks on each protocol."""

    rpc: int
    http: int
    grpc: str
    exit: int


ERROR_CODES: Final = {
    # JSON-RPC's own
    "ParseError": ErrorCodes(-32700, 400, "INVALID_ARGUMENT", 2),
    "InvalidRequest": ErrorCodes(-32600, 400, "INVALID_ARGUMENT", 2),
    "MethodNotFound": ErrorCodes(-32601, 404, "UNIMPLEMENTED", 2),
    "InvalidParams": ErrorCodes(-32602, 400, "INVALID_ARGUMENT", 2),
    "Internal": ErrorCodes(-32603, 500, "INTERNAL", 70),
    # Refused: the request was understood and a rule does not allow it
    "Refused": ErrorCodes(-32000, 409, "FAILED_PRECONDITION", 1),
    "NotFound": ErrorCodes(-32001, 404, "NOT_FOUND", 1),
    "Ambiguous": ErrorCodes(-32028, 409, "FAILED_PRECONDITION", 2),
    "NotConfirmed": ErrorCodes(-32068, 409, "FAILED_PRECONDITION", 1),
    "InsufficientFunds": ErrorCodes(-32002, 402, "FAILED_PRECONDITION", 1),
    "SpendCapReached": ErrorCodes(-32029, 402, "FAILED_PRECONDITION", 1),
    "IdReused": ErrorCodes(-32003, 409, "ALREADY_EXISTS", 1),
    "QueueFull": ErrorCodes(-32004, 503, "RESOURCE_EXHAUSTED", 75),
    "BackPressure": ErrorCodes(-32005, 503, "RESOURCE_EXHAUSTED", 75),
    "NoResultYet": ErrorCodes(-32006, 409, "FAILED_PRECONDITION", 1),
    "Expired": ErrorCodes(-32007, 410, "FAILED_PRECONDITION", 1),
    "Failed": ErrorCodes(-32018, 410, "FAILED_PRECONDITION", 1),
    "Cancelled": ErrorCodes(-32019, 410, "FAILED_PRECONDITION", 1),
    "ResultPruned": ErrorCodes(-32008, 410, "NOT_FOUND", 1),
    "BlobPruned": ErrorCodes(-32027, 410, "NOT_FOUND", 1),
    "AlreadyConsumed": ErrorCodes(-32013, 409, "ALREADY_EXISTS", 1),
    "ProofConflict": ErrorCodes(-32014, 409, "ALREADY_EXISTS", 1),
    "ChainMismatch": ErrorCodes(-32015, 409, "FAILED_PRECONDITION", 1),
    "HeightMismatch": ErrorCodes(-32016, 409, "FAILED_PRECONDITION", 1),
    "RollbackRunning": ErrorCodes(-32017, 503, "UNAVAILABLE", 75),
    "LeaseLost": ErrorCodes(-32030, 409, "FAILED_PRECONDITION", 1),
    "NullifierReuse": ErrorCodes(-32031, 409, "ALREADY_EXISTS", 1),
    "EvidenceGap": ErrorCodes(-32032, 409, "OUT_OF_RANGE", 1),
    "SequenceConflict": ErrorCodes(-32050, 409, "ALREADY_EXISTS", 1),
    "DeadLettersFull": ErrorCodes(-32051, 503, "RESOURCE_EXHAUSTED", 75),
    "EvidencePruned": ErrorCodes(-32052, 410, "NOT_FOUND", 1),
    "NotSealed": ErrorCodes(-32009, 409, "FAILED_PRECONDITION", 1),
    "BadConfig": ErrorCodes(-32012, 400, "INVALID_ARGUMENT", 2),
    # refusals of a spool
    "BadId": ErrorCodes(-32040, 400, "INVALID_ARGUMENT", 2),
    "SessionLocked": ErrorCodes(-32041, 409, "FAILED_PRECONDITION", 75),
    "SessionDamaged": ErrorCodes(-32042, 409, "DATA_LOSS", 1),
    "SessionFinished": ErrorCodes(-32043, 409, "FAILED_PRECONDITION", 1),
    "SessionEnded": ErrorCodes(-32044, 409, "FAILED_PRECONDITION", 1),
    "SpoolFull": ErrorCodes(-32045, 503, "RESOURCE_EXHAUSTED", 75),
    "SpoolClosed": ErrorCodes(-32046, 409, "FAILED_PRECONDITION", 1),
    "AckAhead": ErrorCodes(-32047, 409, "OUT_OF_RANGE", 1),
    "AckGap": ErrorCodes(-32048, 409, "OUT_OF_RANGE", 1),
    "NotFinal": ErrorCodes(-32049, 409, "FAILED_PRECONDITION", 1),
    "NotSpoken": ErrorCodes(-32053, 409, "FAILED_PRECONDITION", 1),
    "SessionForeign": ErrorCodes(-32054, 409, "FAILED_PRECONDITION", 1),
    "SessionOurs": ErrorCodes(-32055, 409, "FAILED_PRECONDITION", 1),
    "SessionGrowing": ErrorCodes(-32056, 409, "FAILED_PRECONDITION", 75),
    "NoMarkerFolder": ErrorCodes(-32057, 400, "INVALID_ARGUMENT", 2),
    # refusals of the gateway
    "InvalidItem": ErrorCodes(-32060, 400, "INVALID_ARGUMENT", 2),
    # between nodes
    "UnknownValidator": ErrorCodes(-32061, 403, "PERMISSION_DENIED", 1),
    "NotValidator": ErrorCodes(-32062, 409, "FAILED_PRECONDITION", 1),
    "BadSignature": ErrorCodes(-32063, 400, "INVALID_ARGUMENT", 1),
    "RootMismatch": ErrorCodes(-32064, 409, "FAILED_PRECONDITION", 1),
    "SidecarMismatch": ErrorCodes(-32065, 400, "INVALID_ARGUMENT", 1),
    "BufferFull": ErrorCodes(-32066, 503, "RESOURCE_EXHAUSTED", 75),
    "Malformed": ErrorCodes(-32067, 400, "INVALID_ARGUMENT", 1),
    # authentication and limits
    "Unauthorized": ErrorCodes(-32020, 401, "UNAUTHENTICATED", 77),
    "KeyExpired": ErrorCodes(-32021, 401, "UNAUTHENTICATED", 77),
    "KeyRevoked": ErrorCodes(-32022, 401, "UNAUTHENTICATED", 77),
    "Forbidden": ErrorCodes(-32023, 403, "PERMISSION_DENIED", 77),
    "AttestationRefused": ErrorCodes(-32026, 403, "PERMISSION_DENIED", 77),
    "RateLimited": ErrorCodes(-32024, 429, "RESOURCE_EXHAUSTED", 75),
    "TooLarge": ErrorCodes(-32025, 413, "RESOURCE_EXHAUSTED", 2),
    # the world or the store failed
    "Unavailable": ErrorCodes(-32010, 503, "UNAVAILABLE", 75),
    "Corrupt": ErrorCodes(-32011, 500, "DATA_LOSS", 74),
}


RESULT_ERRORS: Final = frozenset(
    {
        "NoResultYet",
        "Expired",
        "Failed",
        "Cancelled",
        "ResultPruned",
        "ProofConflict",
        "NullifierReuse",
        "ChainMismatch",
        "AlreadyConsumed",
        "NotFound",
    }
)
"""RES-007: how a read of a result can be refused. The command line prints these names, too."""


HINTS: Final = {
    "BadConfig": "correct the setting or the option that is named, then start again",
    "BadSignature": "check that sender and node use the same keys and the same version",
    "BufferFull": "try again when the notices that wait are used up",
    "Corrupt": "run `holdfast db check`: it names what is damaged and how to repair it",
    "Forbidden": "use a key that may do it; `holdfast key whoami` shows what yours may do",
    "IdReused": "use another id; the first request with this one counts",
    "InvalidParams": "correct the value that is named; `-h` after the command, or rpc.discover, shows what is expected",
    "InvalidRequest": "send it as docs/reference/methods.md says",
    "KeyRevoked": "use another key: `holdfast key create` makes one",
    "LeaseLost": "drop this attempt: the job was given to the queue again, or has ended",
    "Malformed": "check that both nodes run the same version",
    "NotFound": "check the id and the node: the lists show what there is",
    "NullifierReuse": "submit a proof of this lease, made for it alone",
    "QueueFull": "try again when there is room: `holdfast queue show` says how full it is",
    "TooLarge": "send less, or in parts; the message names the limit",
    "Unavailable": "try again in a moment; `holdfast doctor` and the node's log say more",
    "UnknownValidator": "`holdfast validator list` shows who counts, `holdfast validator add` lets a key count",
}
"""What to do about a refusal that does not say it itself, by its name."""
RULE_HINTS: Final = {
    ("InvalidParams", "JOB-001"): "pass --caller ACCOUNT, or use a key of an account",
    ("InvalidParams", "RES-005"): "pass --caller ACCOUNT, or use a key of an account",
    ("InvalidParams", "PRV-003"): "start the agent anew; if that does not help, check that its version is the node's",
    ("NotFound", "BLB-002"): "`holdfast chain head` shows the newest block",
    ("NotFound", "CHN-001"): "`holdfast chain list` shows the blocks",
    ("NotFound", "CHN-003"): "`holdfast chain head` shows the newest block",
    ("NotFound", "ESC-001"): "`holdfast account list` and `holdfast account reservations` show what there is",
    ("NotFound", "ESC-003"): "`holdfast account transfers` shows the references",
    ("NotFound", "EVD-001"): "`holdfast evidence list` shows channels and sessions",
    ("NotFound", "JOB-007"): "`holdfast job list` shows the jobs of this node",
    ("NotFound", "MAT-002"): "`holdfast models` shows what is offered",
    ("NotFound", "PRV-001"): "`holdfast provider list` shows names and ids",
    ("NotFound", "RES-007"): "`holdfast job list` shows the jobs of this node",
}
"""The same where the rule says more."""


def hint_for(name: str, rule: str) -> str:
    """The hint of a refusal without one; empty where none is known."""
    return RULE_HINTS.get((name, rule)) or HINTS.get(name, "")


class ErrorReply(msgspec.Struct, frozen=True):
    """An error, ready to be sent: the same name, rule, message and hint on every protocol."""

    name: str
    rule: str
    message: str
    hint: str = ""
    details: tuple[tuple[str, str], ...] = ()

    @property
    def codes(self) -> ErrorCodes:
        return ERROR_CODES[self.name]

    def __str__(self) -> str:
        text = f"{self.rule}: {self.message}" if self.rule else self.message
        return f"{text} ({self.hint})" if self.hint else text


def error_reply(error: Refused | Exception) -> ErrorReply:
    """The reply to a refusal or a fault. Of an unexpected exception it reveals nothing."""
    match error:
        case Refused(rule, message, hint, name, details):
            return ErrorReply(name, rule, message, hint or hint_for(name, rule), details)
        case Unavailable():
            return ErrorReply("Unavailable", error.rule, error.message, error.hint or HINTS["Unavailable"])
        case Corrupt():
            return ErrorReply("Corrupt", error.rule, error.message, error.hint or HINTS["Corrupt"])
    return ErrorReply("Internal", "", "internal error", "see the node's log")
