-- The gateway's index: a projection of the records in the object store.
CREATE TABLE gateway_item (
    id TEXT PRIMARY KEY,
    created_ms INTEGER NOT NULL,
    size INTEGER NOT NULL,
    content_type TEXT NOT NULL,
    owner TEXT NOT NULL,
    target TEXT NOT NULL,
    raw_tags BLOB NOT NULL,
    key_id TEXT NOT NULL,
    is_public INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX gateway_item_owner ON gateway_item (owner, created_ms, id) WHERE is_public = 1;
CREATE INDEX gateway_item_target ON gateway_item (target, created_ms, id) WHERE is_public = 1 AND target <> '';
-- A tag is the hash of its name and value: tags are compared, never searched, and may be longer than an index allows.
CREATE TABLE gateway_tag (
    tag BLOB NOT NULL,
    created_ms INTEGER NOT NULL,
    id TEXT NOT NULL,
    PRIMARY KEY (tag, created_ms, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE gateway_entry (
    bucket TEXT NOT NULL,
    folder TEXT NOT NULL,
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    PRIMARY KEY (bucket, folder, id, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE gateway_usage (
    key_id TEXT PRIMARY KEY,
    items INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE gateway_state (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
