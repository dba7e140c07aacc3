from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetResultRequest(_message.Message):
    __slots__ = ("task_id", "chain_id", "even_pending")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    CHAIN_ID_FIELD_NUMBER: _ClassVar[int]
    EVEN_PENDING_FIELD_NUMBER: _ClassVar[int]
    task_id: bytes
    chain_id: int
    even_pending: bool
    def __init__(self, task_id: _Optional[bytes] = ..., chain_id: _Optional[int] = ..., even_pending: _Optional[bool] = ...) -> None: ...

class GetResultResponse(_message.Message):
    __slots__ = ("result",)
    RESULT_FIELD_NUMBER: _ClassVar[int]
    result: Result
    def __init__(self, result: _Optional[_Union[Result, _Mapping]] = ...) -> None: ...

class ReadResultRequest(_message.Message):
    __slots__ = ("task_id", "chain_id", "height")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    CHAIN_ID_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    task_id: bytes
    chain_id: int
    height: int
    def __init__(self, task_id: _Optional[bytes] = ..., chain_id: _Optional[int] = ..., height: _Optional[int] = ...) -> None: ...

class ReadResultResponse(_message.Message):
    __slots__ = ("result",)
    RESULT_FIELD_NUMBER: _ClassVar[int]
    result: Result
    def __init__(self, result: _Optional[_Union[Result, _Mapping]] = ...) -> None: ...

class ConsumeResultRequest(_message.Message):
    __slots__ = ("task_id", "chain_id", "height", "nonce", "caller")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    CHAIN_ID_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    task_id: bytes
    chain_id: int
    height: int
    nonce: int
    caller: str
    def __init__(self, task_id: _Optional[bytes] = ..., chain_id: _Optional[int] = ..., height: _Optional[int] = ..., nonce: _Optional[int] = ..., caller: _Optional[str] = ...) -> None: ...

class ConsumeResultResponse(_message.Message):
    __slots__ = ("task_id", "caller", "nonce", "event", "is_repeat")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    IS_REPEAT_FIELD_NUMBER: _ClassVar[int]
    task_id: bytes
    caller: str
    nonce: int
    event: int
    is_repeat: bool
    def __init__(self, task_id: _Optional[bytes] = ..., caller: _Optional[str] = ..., nonce: _Optional[int] = ..., event: _Optional[int] = ..., is_repeat: _Optional[bool] = ...) -> None: ...

class Result(_message.Message):
    __slots__ = ("task_id", "status", "height_resolved", "proof_nullifier", "result_digest", "result_size", "mime_type", "da_commitment", "expires_at", "caller", "kind", "provider_id", "method", "reasons", "readable_from", "consumed_height")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_RESOLVED_FIELD_NUMBER: _ClassVar[int]
    PROOF_NULLIFIER_FIELD_NUMBER: _ClassVar[int]
    RESULT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    RESULT_SIZE_FIELD_NUMBER: _ClassVar[int]
    MIME_TYPE_FIELD_NUMBER: _ClassVar[int]
    DA_COMMITMENT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_ID_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    READABLE_FROM_FIELD_NUMBER: _ClassVar[int]
    CONSUMED_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    task_id: bytes
    status: str
    height_resolved: int
    proof_nullifier: bytes
    result_digest: bytes
    result_size: int
    mime_type: str
    da_commitment: bytes
    expires_at: int
    caller: str
    kind: str
    provider_id: bytes
    method: str
    reasons: str
    readable_from: int
    consumed_height: int
    def __init__(self, task_id: _Optional[bytes] = ..., status: _Optional[str] = ..., height_resolved: _Optional[int] = ..., proof_nullifier: _Optional[bytes] = ..., result_digest: _Optional[bytes] = ..., result_size: _Optional[int] = ..., mime_type: _Optional[str] = ..., da_commitment: _Optional[bytes] = ..., expires_at: _Optional[int] = ..., caller: _Optional[str] = ..., kind: _Optional[str] = ..., provider_id: _Optional[bytes] = ..., method: _Optional[str] = ..., reasons: _Optional[str] = ..., readable_from: _Optional[int] = ..., consumed_height: _Optional[int] = ...) -> None: ...
