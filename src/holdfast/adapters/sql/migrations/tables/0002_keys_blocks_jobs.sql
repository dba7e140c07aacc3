-- Keys that open the doors, blocks of the chain, jobs and their payloads.
CREATE TABLE key (
    id           TEXT PRIMARY KEY,
    event        INTEGER NOT NULL,
    role         TEXT    NOT NULL,
    account      TEXT,
    tier         TEXT    NOT NULL,
    scopes       TEXT    NOT NULL,
    label        TEXT    NOT NULL,
    secret       BLOB    NOT NULL,
    made_ms      INTEGER NOT NULL,
    expires_ms   INTEGER,
    revoked_ms   INTEGER,
    old_secret   BLOB,
    old_until_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE block (
    event        INTEGER PRIMARY KEY,
    height       INTEGER NOT NULL,
    hash         BLOB    NOT NULL,
    status       TEXT    NOT NULL,
    parent       BLOB    NOT NULL,
    time_ms      INTEGER NOT NULL,
    proposer     BLOB    NOT NULL,
    beacon       BLOB    NOT NULL,
    first_event  INTEGER NOT NULL,
    last_event   INTEGER NOT NULL,
    tx_count     INTEGER NOT NULL,
    tx_root      BLOB    NOT NULL,
    result_count INTEGER NOT NULL,
    result_root  BLOB    NOT NULL,
    blob_count   INTEGER NOT NULL,
    blob_root    BLOB    NOT NULL,
    log_size     INTEGER NOT NULL,
    log_root     BLOB    NOT NULL,
    signature    BLOB    NOT NULL
) STRICT;
CREATE INDEX block_by_height ON block (height, event);

CREATE TABLE job (
    event               INTEGER PRIMARY KEY,
    id                  BLOB    NOT NULL,
    kind                TEXT    NOT NULL,
    caller              TEXT    NOT NULL,
    tier                TEXT    NOT NULL,
    height              INTEGER NOT NULL,
    tx_hash             BLOB    NOT NULL,
    nonce               INTEGER NOT NULL,
    request_hash        BLOB    NOT NULL,
    size_bytes          INTEGER NOT NULL,
    spec_digest         BLOB    NOT NULL,
    max_fee             INTEGER NOT NULL,
    units               INTEGER NOT NULL,
    priority            INTEGER NOT NULL,
    enqueue_ms          INTEGER NOT NULL,
    expires_ms          INTEGER NOT NULL,
    requirements        BLOB    NOT NULL,
    proof               TEXT    NOT NULL,
    state               TEXT    NOT NULL,
    attempts            INTEGER NOT NULL,
    failures            INTEGER NOT NULL,
    not_before_ms       INTEGER NOT NULL,
    relative_expires_ms INTEGER,
    charged             INTEGER,
    payee               TEXT,
    settled_height      INTEGER,
    reason              TEXT    NOT NULL,
    ended_ms            INTEGER
) STRICT;
CREATE INDEX job_by_caller ON job (caller, event);

CREATE TABLE spec (
    event INTEGER PRIMARY KEY,
    raw   BLOB    NOT NULL
) STRICT;
