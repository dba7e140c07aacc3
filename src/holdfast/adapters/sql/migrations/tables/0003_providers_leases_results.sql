-- Providers, their leases, the results of their work with the log's leaves, and their evidence.
CREATE TABLE provider (
    id                BLOB PRIMARY KEY,
    event             INTEGER NOT NULL,
    public            BLOB    NOT NULL,
    name              TEXT    NOT NULL,
    account           TEXT    NOT NULL,
    capabilities      BLOB    NOT NULL,
    region            TEXT    NOT NULL,
    price             INTEGER NOT NULL,
    slots             INTEGER NOT NULL,
    attested_until_ms INTEGER NOT NULL,
    registered_ms     INTEGER NOT NULL,
    status            TEXT    NOT NULL,
    stake             INTEGER NOT NULL,
    health_ppm        INTEGER NOT NULL,
    heartbeat_ms      INTEGER NOT NULL,
    leases            INTEGER NOT NULL,
    completed         INTEGER NOT NULL,
    failed            INTEGER NOT NULL,
    failures_in_row   INTEGER NOT NULL,
    cooling_until_ms  INTEGER NOT NULL,
    is_draining       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE lease (
    event          INTEGER PRIMARY KEY,
    id             BLOB    NOT NULL,
    job_id         BLOB    NOT NULL,
    provider_id    BLOB    NOT NULL,
    attempt        INTEGER NOT NULL,
    t_start_ms     INTEGER NOT NULL,
    t_deadline_ms  INTEGER NOT NULL,
    renew_by_ms    INTEGER NOT NULL,
    ack_by_ms      INTEGER NOT NULL,
    price          INTEGER NOT NULL,
    t_ms           INTEGER NOT NULL,
    status         TEXT    NOT NULL,
    acked_ms       INTEGER,
    renewals       INTEGER NOT NULL,
    late_renewals  INTEGER NOT NULL,
    forgiven_ms    INTEGER NOT NULL,
    submitted      BLOB,
    submitted_size INTEGER NOT NULL,
    submitted_ms   INTEGER,
    reason         TEXT    NOT NULL,
    ended_ms       INTEGER
) STRICT;
CREATE INDEX lease_by_job ON lease (job_id, event);

CREATE TABLE result (
    event           INTEGER PRIMARY KEY,
    task_id         BLOB    NOT NULL,
    status          TEXT    NOT NULL,
    height_resolved INTEGER NOT NULL,
    proof_nullifier BLOB    NOT NULL,
    result_digest   BLOB    NOT NULL,
    result_size     INTEGER NOT NULL,
    mime_type       TEXT    NOT NULL,
    da_commitment   BLOB,
    expires_at      INTEGER NOT NULL,
    leaf_index      INTEGER NOT NULL,
    provider_id     BLOB    NOT NULL,
    payee           TEXT    NOT NULL,
    charged         INTEGER NOT NULL,
    method          TEXT    NOT NULL,
    reasons         TEXT    NOT NULL
) STRICT;
CREATE INDEX result_by_task ON result (task_id);

CREATE TABLE leaf (
    place  INTEGER PRIMARY KEY,
    height INTEGER NOT NULL,
    raw    BLOB    NOT NULL
) STRICT;

CREATE TABLE mark (
    id          TEXT PRIMARY KEY,
    provider_id BLOB    NOT NULL,
    channel     TEXT    NOT NULL,
    session     TEXT    NOT NULL,
    acked       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE evidence (
    event          INTEGER PRIMARY KEY,
    provider_id    BLOB    NOT NULL,
    channel        TEXT    NOT NULL,
    session        TEXT    NOT NULL,
    first_sequence INTEGER NOT NULL,
    last_sequence  INTEGER NOT NULL,
    size           INTEGER NOT NULL,
    digest         BLOB    NOT NULL,
    lines          BLOB
) STRICT;
CREATE INDEX evidence_by_channel ON evidence (channel, session, event);
