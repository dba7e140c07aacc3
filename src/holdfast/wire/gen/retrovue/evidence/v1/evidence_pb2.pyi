from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EvidenceFromAir(_message.Message):
    __slots__ = ("schema_version", "channel_id", "playout_session_id", "sequence", "event_uuid", "emitted_utc", "hello", "block_start", "segment_end", "block_fence", "channel_terminated", "segment_start")
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_ID_FIELD_NUMBER: _ClassVar[int]
    PLAYOUT_SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    EVENT_UUID_FIELD_NUMBER: _ClassVar[int]
    EMITTED_UTC_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    BLOCK_START_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_END_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FENCE_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_TERMINATED_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_START_FIELD_NUMBER: _ClassVar[int]
    schema_version: int
    channel_id: str
    playout_session_id: str
    sequence: int
    event_uuid: str
    emitted_utc: str
    hello: Hello
    block_start: BlockStart
    segment_end: SegmentEnd
    block_fence: BlockFence
    channel_terminated: ChannelTerminated
    segment_start: SegmentStart
    def __init__(self, schema_version: _Optional[int] = ..., channel_id: _Optional[str] = ..., playout_session_id: _Optional[str] = ..., sequence: _Optional[int] = ..., event_uuid: _Optional[str] = ..., emitted_utc: _Optional[str] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., block_start: _Optional[_Union[BlockStart, _Mapping]] = ..., segment_end: _Optional[_Union[SegmentEnd, _Mapping]] = ..., block_fence: _Optional[_Union[BlockFence, _Mapping]] = ..., channel_terminated: _Optional[_Union[ChannelTerminated, _Mapping]] = ..., segment_start: _Optional[_Union[SegmentStart, _Mapping]] = ...) -> None: ...

class EvidenceAckFromCore(_message.Message):
    __slots__ = ("channel_id", "playout_session_id", "acked_sequence", "error")
    CHANNEL_ID_FIELD_NUMBER: _ClassVar[int]
    PLAYOUT_SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    ACKED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    channel_id: str
    playout_session_id: str
    acked_sequence: int
    error: str
    def __init__(self, channel_id: _Optional[str] = ..., playout_session_id: _Optional[str] = ..., acked_sequence: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("first_sequence_available", "last_sequence_emitted")
    FIRST_SEQUENCE_AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_EMITTED_FIELD_NUMBER: _ClassVar[int]
    first_sequence_available: int
    last_sequence_emitted: int
    def __init__(self, first_sequence_available: _Optional[int] = ..., last_sequence_emitted: _Optional[int] = ...) -> None: ...

class BlockStart(_message.Message):
    __slots__ = ("block_id", "swap_tick", "fence_tick", "actual_start_utc_ms", "primed_success")
    BLOCK_ID_FIELD_NUMBER: _ClassVar[int]
    SWAP_TICK_FIELD_NUMBER: _ClassVar[int]
    FENCE_TICK_FIELD_NUMBER: _ClassVar[int]
    ACTUAL_START_UTC_MS_FIELD_NUMBER: _ClassVar[int]
    PRIMED_SUCCESS_FIELD_NUMBER: _ClassVar[int]
    block_id: str
    swap_tick: int
    fence_tick: int
    actual_start_utc_ms: int
    primed_success: bool
    def __init__(self, block_id: _Optional[str] = ..., swap_tick: _Optional[int] = ..., fence_tick: _Optional[int] = ..., actual_start_utc_ms: _Optional[int] = ..., primed_success: _Optional[bool] = ...) -> None: ...

class SegmentStart(_message.Message):
    __slots__ = ("block_id", "event_id", "segment_index", "actual_start_utc_ms", "asset_start_frame", "scheduled_duration_ms", "join_in_progress", "segment_type_name", "asset_uri", "segment_title", "segment_uuid", "asset_uuid")
    BLOCK_ID_FIELD_NUMBER: _ClassVar[int]
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_INDEX_FIELD_NUMBER: _ClassVar[int]
    ACTUAL_START_UTC_MS_FIELD_NUMBER: _ClassVar[int]
    ASSET_START_FRAME_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    JOIN_IN_PROGRESS_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_TYPE_NAME_FIELD_NUMBER: _ClassVar[int]
    ASSET_URI_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_TITLE_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_UUID_FIELD_NUMBER: _ClassVar[int]
    ASSET_UUID_FIELD_NUMBER: _ClassVar[int]
    block_id: str
    event_id: str
    segment_index: int
    actual_start_utc_ms: int
    asset_start_frame: int
    scheduled_duration_ms: int
    join_in_progress: bool
    segment_type_name: str
    asset_uri: str
    segment_title: str
    segment_uuid: str
    asset_uuid: str
    def __init__(self, block_id: _Optional[str] = ..., event_id: _Optional[str] = ..., segment_index: _Optional[int] = ..., actual_start_utc_ms: _Optional[int] = ..., asset_start_frame: _Optional[int] = ..., scheduled_duration_ms: _Optional[int] = ..., join_in_progress: _Optional[bool] = ..., segment_type_name: _Optional[str] = ..., asset_uri: _Optional[str] = ..., segment_title: _Optional[str] = ..., segment_uuid: _Optional[str] = ..., asset_uuid: _Optional[str] = ...) -> None: ...

class SegmentEnd(_message.Message):
    __slots__ = ("block_id", "event_id_ref", "actual_start_utc_ms", "actual_end_utc_ms", "asset_start_frame", "asset_end_frame", "computed_duration_ms", "computed_duration_frames", "status", "reason", "fallback_frames_used", "segment_uuid", "segment_type_name", "asset_uuid")
    BLOCK_ID_FIELD_NUMBER: _ClassVar[int]
    EVENT_ID_REF_FIELD_NUMBER: _ClassVar[int]
    ACTUAL_START_UTC_MS_FIELD_NUMBER: _ClassVar[int]
    ACTUAL_END_UTC_MS_FIELD_NUMBER: _ClassVar[int]
    ASSET_START_FRAME_FIELD_NUMBER: _ClassVar[int]
    ASSET_END_FRAME_FIELD_NUMBER: _ClassVar[int]
    COMPUTED_DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    COMPUTED_DURATION_FRAMES_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_FRAMES_USED_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_UUID_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_TYPE_NAME_FIELD_NUMBER: _ClassVar[int]
    ASSET_UUID_FIELD_NUMBER: _ClassVar[int]
    block_id: str
    event_id_ref: str
    actual_start_utc_ms: int
    actual_end_utc_ms: int
    asset_start_frame: int
    asset_end_frame: int
    computed_duration_ms: int
    computed_duration_frames: int
    status: str
    reason: str
    fallback_frames_used: int
    segment_uuid: str
    segment_type_name: str
    asset_uuid: str
    def __init__(self, block_id: _Optional[str] = ..., event_id_ref: _Optional[str] = ..., actual_start_utc_ms: _Optional[int] = ..., actual_end_utc_ms: _Optional[int] = ..., asset_start_frame: _Optional[int] = ..., asset_end_frame: _Optional[int] = ..., computed_duration_ms: _Optional[int] = ..., computed_duration_frames: _Optional[int] = ..., status: _Optional[str] = ..., reason: _Optional[str] = ..., fallback_frames_used: _Optional[int] = ..., segment_uuid: _Optional[str] = ..., segment_type_name: _Optional[str] = ..., asset_uuid: _Optional[str] = ...) -> None: ...

class BlockFence(_message.Message):
    __slots__ = ("block_id", "swap_tick", "fence_tick", "actual_end_utc_ms", "ct_at_fence_ms", "total_frames_emitted", "truncated_by_fence", "early_exhaustion", "primed_success")
    BLOCK_ID_FIELD_NUMBER: _ClassVar[int]
    SWAP_TICK_FIELD_NUMBER: _ClassVar[int]
    FENCE_TICK_FIELD_NUMBER: _ClassVar[int]
    ACTUAL_END_UTC_MS_FIELD_NUMBER: _ClassVar[int]
    CT_AT_FENCE_MS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FRAMES_EMITTED_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_BY_FENCE_FIELD_NUMBER: _ClassVar[int]
    EARLY_EXHAUSTION_FIELD_NUMBER: _ClassVar[int]
    PRIMED_SUCCESS_FIELD_NUMBER: _ClassVar[int]
    block_id: str
    swap_tick: int
    fence_tick: int
    actual_end_utc_ms: int
    ct_at_fence_ms: int
    total_frames_emitted: int
    truncated_by_fence: bool
    early_exhaustion: bool
    primed_success: bool
    def __init__(self, block_id: _Optional[str] = ..., swap_tick: _Optional[int] = ..., fence_tick: _Optional[int] = ..., actual_end_utc_ms: _Optional[int] = ..., ct_at_fence_ms: _Optional[int] = ..., total_frames_emitted: _Optional[int] = ..., truncated_by_fence: _Optional[bool] = ..., early_exhaustion: _Optional[bool] = ..., primed_success: _Optional[bool] = ...) -> None: ...

class ChannelTerminated(_message.Message):
    __slots__ = ("termination_utc_ms", "reason", "detail")
    TERMINATION_UTC_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    termination_utc_ms: int
    reason: str
    detail: str
    def __init__(self, termination_utc_ms: _Optional[int] = ..., reason: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...
