from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("version", "network", "chain_id", "role", "phase", "event", "batch", "term")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    CHAIN_ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    version: str
    network: str
    chain_id: int
    role: str
    phase: str
    event: int
    batch: int
    term: int
    def __init__(self, version: _Optional[str] = ..., network: _Optional[str] = ..., chain_id: _Optional[int] = ..., role: _Optional[str] = ..., phase: _Optional[str] = ..., event: _Optional[int] = ..., batch: _Optional[int] = ..., term: _Optional[int] = ...) -> None: ...

class GetHeadRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetHeadResponse(_message.Message):
    __slots__ = ("height", "hash", "time_ms")
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    height: int
    hash: bytes
    time_ms: int
    def __init__(self, height: _Optional[int] = ..., hash: _Optional[bytes] = ..., time_ms: _Optional[int] = ...) -> None: ...
