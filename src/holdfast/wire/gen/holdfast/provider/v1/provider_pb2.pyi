from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetChallengeRequest(_message.Message):
    __slots__ = ("public",)
    PUBLIC_FIELD_NUMBER: _ClassVar[int]
    public: bytes
    def __init__(self, public: _Optional[bytes] = ...) -> None: ...

class GetChallengeResponse(_message.Message):
    __slots__ = ("nonce", "chain_id", "time_ms")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    CHAIN_ID_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    nonce: bytes
    chain_id: int
    time_ms: int
    def __init__(self, nonce: _Optional[bytes] = ..., chain_id: _Optional[int] = ..., time_ms: _Optional[int] = ...) -> None: ...

class RegisterRequest(_message.Message):
    __slots__ = ("body", "signature")
    BODY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    body: bytes
    signature: bytes
    def __init__(self, body: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class RegisterResponse(_message.Message):
    __slots__ = ("provider_id", "status", "stake", "stake_min")
    PROVIDER_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    STAKE_FIELD_NUMBER: _ClassVar[int]
    STAKE_MIN_FIELD_NUMBER: _ClassVar[int]
    provider_id: bytes
    status: str
    stake: int
    stake_min: int
    def __init__(self, provider_id: _Optional[bytes] = ..., status: _Optional[str] = ..., stake: _Optional[int] = ..., stake_min: _Optional[int] = ...) -> None: ...

class WorkRequest(_message.Message):
    __slots__ = ("open", "acts")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    ACTS_FIELD_NUMBER: _ClassVar[int]
    open: Open
    acts: SignedActs
    def __init__(self, open: _Optional[_Union[Open, _Mapping]] = ..., acts: _Optional[_Union[SignedActs, _Mapping]] = ...) -> None: ...

class Open(_message.Message):
    __slots__ = ("public", "signature", "instance")
    PUBLIC_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    public: bytes
    signature: bytes
    instance: bytes
    def __init__(self, public: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., instance: _Optional[bytes] = ...) -> None: ...

class SignedActs(_message.Message):
    __slots__ = ("body", "signature")
    BODY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    body: bytes
    signature: bytes
    def __init__(self, body: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class WorkResponse(_message.Message):
    __slots__ = ("challenge", "welcome", "updates", "draining")
    CHALLENGE_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    challenge: Challenge
    welcome: Welcome
    updates: Updates
    draining: Draining
    def __init__(self, challenge: _Optional[_Union[Challenge, _Mapping]] = ..., welcome: _Optional[_Union[Welcome, _Mapping]] = ..., updates: _Optional[_Union[Updates, _Mapping]] = ..., draining: _Optional[_Union[Draining, _Mapping]] = ...) -> None: ...

class Updates(_message.Message):
    __slots__ = ("lost", "verdicts", "offers", "acts_done")
    LOST_FIELD_NUMBER: _ClassVar[int]
    VERDICTS_FIELD_NUMBER: _ClassVar[int]
    OFFERS_FIELD_NUMBER: _ClassVar[int]
    ACTS_DONE_FIELD_NUMBER: _ClassVar[int]
    lost: _containers.RepeatedCompositeFieldContainer[Lost]
    verdicts: _containers.RepeatedCompositeFieldContainer[Verdict]
    offers: _containers.RepeatedCompositeFieldContainer[Offer]
    acts_done: _containers.RepeatedCompositeFieldContainer[ActsDone]
    def __init__(self, lost: _Optional[_Iterable[_Union[Lost, _Mapping]]] = ..., verdicts: _Optional[_Iterable[_Union[Verdict, _Mapping]]] = ..., offers: _Optional[_Iterable[_Union[Offer, _Mapping]]] = ..., acts_done: _Optional[_Iterable[_Union[ActsDone, _Mapping]]] = ...) -> None: ...

class Challenge(_message.Message):
    __slots__ = ("nonce",)
    NONCE_FIELD_NUMBER: _ClassVar[int]
    nonce: bytes
    def __init__(self, nonce: _Optional[bytes] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("provider_id", "status", "time_ms", "heartbeat_ms")
    PROVIDER_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    provider_id: bytes
    status: str
    time_ms: int
    heartbeat_ms: int
    def __init__(self, provider_id: _Optional[bytes] = ..., status: _Optional[str] = ..., time_ms: _Optional[int] = ..., heartbeat_ms: _Optional[int] = ...) -> None: ...

class Offer(_message.Message):
    __slots__ = ("lease_id", "task_id", "kind", "attempt", "payload", "t_start_ms", "t_deadline_ms", "renew_by_ms", "ack_by_ms", "time_ms", "proof", "is_acked", "is_submitted", "renewals", "pay", "requirements")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    T_START_MS_FIELD_NUMBER: _ClassVar[int]
    T_DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    RENEW_BY_MS_FIELD_NUMBER: _ClassVar[int]
    ACK_BY_MS_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    IS_ACKED_FIELD_NUMBER: _ClassVar[int]
    IS_SUBMITTED_FIELD_NUMBER: _ClassVar[int]
    RENEWALS_FIELD_NUMBER: _ClassVar[int]
    PAY_FIELD_NUMBER: _ClassVar[int]
    REQUIREMENTS_FIELD_NUMBER: _ClassVar[int]
    lease_id: bytes
    task_id: bytes
    kind: str
    attempt: int
    payload: bytes
    t_start_ms: int
    t_deadline_ms: int
    renew_by_ms: int
    ack_by_ms: int
    time_ms: int
    proof: str
    is_acked: bool
    is_submitted: bool
    renewals: int
    pay: int
    requirements: bytes
    def __init__(self, lease_id: _Optional[bytes] = ..., task_id: _Optional[bytes] = ..., kind: _Optional[str] = ..., attempt: _Optional[int] = ..., payload: _Optional[bytes] = ..., t_start_ms: _Optional[int] = ..., t_deadline_ms: _Optional[int] = ..., renew_by_ms: _Optional[int] = ..., ack_by_ms: _Optional[int] = ..., time_ms: _Optional[int] = ..., proof: _Optional[str] = ..., is_acked: _Optional[bool] = ..., is_submitted: _Optional[bool] = ..., renewals: _Optional[int] = ..., pay: _Optional[int] = ..., requirements: _Optional[bytes] = ...) -> None: ...

class Lost(_message.Message):
    __slots__ = ("lease_id", "reason")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    lease_id: bytes
    reason: str
    def __init__(self, lease_id: _Optional[bytes] = ..., reason: _Optional[str] = ...) -> None: ...

class Verdict(_message.Message):
    __slots__ = ("lease_id", "is_accepted", "reason")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    IS_ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    lease_id: bytes
    is_accepted: bool
    reason: str
    def __init__(self, lease_id: _Optional[bytes] = ..., is_accepted: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class ActsDone(_message.Message):
    __slots__ = ("count", "outcomes")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    count: int
    outcomes: _containers.RepeatedCompositeFieldContainer[ActOutcome]
    def __init__(self, count: _Optional[int] = ..., outcomes: _Optional[_Iterable[_Union[ActOutcome, _Mapping]]] = ...) -> None: ...

class ActOutcome(_message.Message):
    __slots__ = ("is_done", "name", "rule", "message")
    IS_DONE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    is_done: bool
    name: str
    rule: str
    message: str
    def __init__(self, is_done: _Optional[bool] = ..., name: _Optional[str] = ..., rule: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class Draining(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PutOutputRequest(_message.Message):
    __slots__ = ("header", "part", "end")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    header: OutputHeader
    part: bytes
    end: OutputEnd
    def __init__(self, header: _Optional[_Union[OutputHeader, _Mapping]] = ..., part: _Optional[bytes] = ..., end: _Optional[_Union[OutputEnd, _Mapping]] = ...) -> None: ...

class OutputHeader(_message.Message):
    __slots__ = ("lease_id", "public", "digest", "size", "signature")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    lease_id: bytes
    public: bytes
    digest: bytes
    size: int
    signature: bytes
    def __init__(self, lease_id: _Optional[bytes] = ..., public: _Optional[bytes] = ..., digest: _Optional[bytes] = ..., size: _Optional[int] = ..., signature: _Optional[bytes] = ...) -> None: ...

class OutputEnd(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PutOutputResponse(_message.Message):
    __slots__ = ("digest", "size")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    digest: bytes
    size: int
    def __init__(self, digest: _Optional[bytes] = ..., size: _Optional[int] = ...) -> None: ...

class GetInputRequest(_message.Message):
    __slots__ = ("lease_id", "public", "offset", "signature")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    lease_id: bytes
    public: bytes
    offset: int
    signature: bytes
    def __init__(self, lease_id: _Optional[bytes] = ..., public: _Optional[bytes] = ..., offset: _Optional[int] = ..., signature: _Optional[bytes] = ...) -> None: ...

class GetInputResponse(_message.Message):
    __slots__ = ("part",)
    PART_FIELD_NUMBER: _ClassVar[int]
    part: bytes
    def __init__(self, part: _Optional[bytes] = ...) -> None: ...

class CompleteRequest(_message.Message):
    __slots__ = ("public", "type", "method", "body", "signature")
    PUBLIC_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    public: bytes
    type: int
    method: str
    body: bytes
    signature: bytes
    def __init__(self, public: _Optional[bytes] = ..., type: _Optional[int] = ..., method: _Optional[str] = ..., body: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class CompleteResponse(_message.Message):
    __slots__ = ("event", "is_repeat")
    EVENT_FIELD_NUMBER: _ClassVar[int]
    IS_REPEAT_FIELD_NUMBER: _ClassVar[int]
    event: int
    is_repeat: bool
    def __init__(self, event: _Optional[int] = ..., is_repeat: _Optional[bool] = ...) -> None: ...

class DeclareRequest(_message.Message):
    __slots__ = ("body", "signature", "new_signature")
    BODY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    NEW_SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    body: bytes
    signature: bytes
    new_signature: bytes
    def __init__(self, body: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., new_signature: _Optional[bytes] = ...) -> None: ...

class DeclareResponse(_message.Message):
    __slots__ = ("provider_id", "status", "event", "is_repeat")
    PROVIDER_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    IS_REPEAT_FIELD_NUMBER: _ClassVar[int]
    provider_id: bytes
    status: str
    event: int
    is_repeat: bool
    def __init__(self, provider_id: _Optional[bytes] = ..., status: _Optional[str] = ..., event: _Optional[int] = ..., is_repeat: _Optional[bool] = ...) -> None: ...
