from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StreamRequest(_message.Message):
    __slots__ = ("hello", "records")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    records: Records
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., records: _Optional[_Union[Records, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("channel_id", "session_id", "first_sequence_available", "last_sequence_emitted", "public", "signature")
    CHANNEL_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_EMITTED_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    channel_id: str
    session_id: str
    first_sequence_available: int
    last_sequence_emitted: int
    public: bytes
    signature: bytes
    def __init__(self, channel_id: _Optional[str] = ..., session_id: _Optional[str] = ..., first_sequence_available: _Optional[int] = ..., last_sequence_emitted: _Optional[int] = ..., public: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Records(_message.Message):
    __slots__ = ("first_sequence", "lines")
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    first_sequence: int
    lines: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, first_sequence: _Optional[int] = ..., lines: _Optional[_Iterable[bytes]] = ...) -> None: ...

class StreamResponse(_message.Message):
    __slots__ = ("challenge", "ack", "refusal")
    CHALLENGE_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    challenge: Challenge
    ack: Ack
    refusal: Refusal
    def __init__(self, challenge: _Optional[_Union[Challenge, _Mapping]] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ...) -> None: ...

class Challenge(_message.Message):
    __slots__ = ("nonce",)
    NONCE_FIELD_NUMBER: _ClassVar[int]
    nonce: bytes
    def __init__(self, nonce: _Optional[bytes] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("acked_sequence", "credit_bytes")
    ACKED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CREDIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    acked_sequence: int
    credit_bytes: int
    def __init__(self, acked_sequence: _Optional[int] = ..., credit_bytes: _Optional[int] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("name", "rule", "message", "hint", "acked_sequence")
    NAME_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    ACKED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    rule: str
    message: str
    hint: str
    acked_sequence: int
    def __init__(self, name: _Optional[str] = ..., rule: _Optional[str] = ..., message: _Optional[str] = ..., hint: _Optional[str] = ..., acked_sequence: _Optional[int] = ...) -> None: ...
