"""One class for each refusal of a node, so that a program catches the one it can act on.

A class is named for its refusal, with `Error` at the end. A test holds that every name of the node's table has one.
"""

from __future__ import annotations

from typing import Any, Final

from holdfast.client.errors import JobEnded, NodeRefused


class ParseError(NodeRefused):
    """The message is not JSON."""


class InvalidRequestError(NodeRefused):
    """The request is not well-formed."""


class MethodNotFoundError(NodeRefused):
    """The node has no such method."""


class InvalidParamsError(NodeRefused):
    """A parameter is missing or wrong; the message names it."""


class InternalError(NodeRefused):
    """The node failed; its log says why."""


class RefusedError(NodeRefused):
    """A rule does not allow it; the message names the rule."""


class NotFoundError(NodeRefused):
    """There is no such job, result, account or provider."""


class AmbiguousError(NodeRefused):
    """An abbreviated id is the beginning of several; the hint names them."""


class InsufficientFundsError(NodeRefused):
    """The account does not have the money."""


class SpendCapReachedError(NodeRefused):
    """The key has reserved as much as it may in a day."""


class IdReusedError(NodeRefused):
    """The idempotency key was used for another request."""


class QueueFullError(NodeRefused):
    """The queue has no room; try again later."""


class BackPressureError(NodeRefused):
    """The node has more work than it can decide; try again later."""


class NoResultYetError(NodeRefused):
    """The result is not readable yet."""


class ExpiredError(JobEnded):
    """The job's time to live ended."""


class FailedError(JobEnded):
    """The job failed too often, or its input is invalid."""


class CancelledError(JobEnded):
    """The job was cancelled."""


class ResultPrunedError(NodeRefused):
    """Retention has deleted the bytes; `details` says by which digests they are known."""


class BlobPrunedError(NodeRefused):
    """The bytes of the block's blobs are not on this node; `details` has their locators."""


class AlreadyConsumedError(NodeRefused):
    """The result was used before."""


class ProofConflictError(NodeRefused):
    """Another proof of this job was accepted."""


class ChainMismatchError(NodeRefused):
    """The node has another chain."""


class HeightMismatchError(NodeRefused):
    """The open block has another height."""


class RollbackRunningError(NodeRefused):
    """A rollback is running; try again."""


class LeaseLostError(NodeRefused):
    """The lease is not held any more."""


class NullifierReuseError(NodeRefused):
    """The proof was used before."""


class EvidenceGapError(NodeRefused):
    """Records before these are missing."""


class SequenceConflictError(NodeRefused):
    """Another record has this number."""


class DeadLettersFullError(NodeRefused):
    """There is no room for rejected records."""


class EvidencePrunedError(NodeRefused):
    """Retention has deleted the evidence."""


class NotSealedError(NodeRefused):
    """The session has not been sealed."""


class BadConfigError(NodeRefused):
    """The settings are wrong."""


class BadIdError(NodeRefused):
    """The id is malformed."""


class SessionLockedError(NodeRefused):
    """Another process has the session."""


class SessionDamagedError(NodeRefused):
    """The session's files are damaged."""


class SessionFinishedError(NodeRefused):
    """The session is finished."""


class SessionEndedError(NodeRefused):
    """The session has ended."""


class SpoolFullError(NodeRefused):
    """The spool has no room."""


class SpoolClosedError(NodeRefused):
    """The spool is closed."""


class AckAheadError(NodeRefused):
    """The acknowledgement is ahead."""


class AckGapError(NodeRefused):
    """The acknowledgement leaves a gap."""


class NotConfirmedError(NodeRefused):
    """It cannot be undone, and was not confirmed."""


class NotFinalError(NodeRefused):
    """It is not final yet."""


class NotSpokenError(NodeRefused):
    """The peer does not speak this protocol."""


class SessionForeignError(NodeRefused):
    """The session is another program's."""


class SessionOursError(NodeRefused):
    """The session is our own."""


class SessionGrowingError(NodeRefused):
    """The session is still growing."""


class NoMarkerFolderError(NodeRefused):
    """There is no folder for markers."""


class InvalidItemError(NodeRefused):
    """The data item is invalid."""


class UnauthorizedError(NodeRefused):
    """A key is needed, or the token is wrong."""


class KeyExpiredError(NodeRefused):
    """The key has expired."""


class KeyRevokedError(NodeRefused):
    """The key was revoked."""


class ForbiddenError(NodeRefused):
    """This key may not do it."""


class AttestationRefusedError(NodeRefused):
    """The attestation is not accepted."""


class RateLimitedError(NodeRefused):
    """Too many requests; try again later."""


class TooLargeError(NodeRefused):
    """The request is too large."""


class UnavailableError(NodeRefused):
    """The node cannot answer now; try again."""


class CorruptError(NodeRefused):
    """Stored facts contradict each other; an operator must look."""


class UnknownValidatorError(NodeRefused):
    """The chain does not know this validator."""


class NotValidatorError(NodeRefused):
    """The refusal of this name, between nodes."""


class BadSignatureError(NodeRefused):
    """The signature is not valid."""


class RootMismatchError(NodeRefused):
    """The state root is another one."""


class SidecarMismatchError(NodeRefused):
    """The refusal of this name, between nodes."""


class BufferFullError(NodeRefused):
    """There is no room for more blocks of others."""


class MalformedError(NodeRefused):
    """The message cannot be read."""


def _named(kinds: list[type[NodeRefused]]) -> dict[str, type[NodeRefused]]:
    names = [kind.__name__ if kind is ParseError else kind.__name__.removesuffix("Error") for kind in kinds]
    return {name: kind for name, kind in zip(names, kinds, strict=True) if kind is not JobEnded}


REFUSALS: Final = _named([*NodeRefused.__subclasses__(), *JobEnded.__subclasses__()])
"""The class of each refusal by its name; one that this library does not know yet is NodeRefused itself."""


def refusal_from(error: dict[str, Any]) -> NodeRefused:
    """From the error object of a JSON-RPC response."""
    data = error.get("data") or {}
    return make_refusal(data | {"message": error["message"]}, error["code"], data.get("about"))


def make_refusal(data: dict[str, Any], code: int = 0, details: dict[str, str] | None = None) -> NodeRefused:
    name, rule, message, hint = (str(data.get(key, "")) for key in ("name", "rule", "message", "hint"))
    kind = REFUSALS.get(name, NodeRefused)
    return kind(code=code, name=name, rule=rule, message=message, hint=hint, details=details)
