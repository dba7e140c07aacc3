-- The gateway's index: a projection of the records in the object store.
CREATE TABLE gateway_item (
    id text COLLATE "C" PRIMARY KEY,
    created_ms bigint NOT NULL,
    size bigint NOT NULL,
    content_type text NOT NULL,
    owner text COLLATE "C" NOT NULL,
    target text COLLATE "C" NOT NULL,
    raw_tags bytea NOT NULL,
    key_id text NOT NULL,
    is_public bigint NOT NULL
);
CREATE INDEX gateway_item_owner ON gateway_item (owner, created_ms, id) WHERE is_public = 1;
CREATE INDEX gateway_item_target ON gateway_item (target, created_ms, id) WHERE is_public = 1 AND target <> '';
-- A tag is the hash of its name and value: tags are compared, never searched, and may be longer than an index allows.
CREATE TABLE gateway_tag (
    tag bytea NOT NULL,
    created_ms bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    PRIMARY KEY (tag, created_ms, id)
);
CREATE TABLE gateway_entry (
    bucket text COLLATE "C" NOT NULL,
    folder text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    created_ms bigint NOT NULL,
    PRIMARY KEY (bucket, folder, id, name)
);
CREATE TABLE gateway_usage (
    key_id text PRIMARY KEY,
    items bigint NOT NULL,
    bytes bigint NOT NULL
);
CREATE TABLE gateway_state (
    name text PRIMARY KEY,
    value bigint NOT NULL
);
