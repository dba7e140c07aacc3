-- The projection: one row for each record, claims in sorted runs, one checkpoint.
-- The columns of a table have the order of its record's fields.

-- How far the tables are complete: one row, written in the transaction of the rows it covers.
CREATE TABLE checkpoint (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    number     INTEGER NOT NULL,
    term       INTEGER NOT NULL,
    last_event INTEGER NOT NULL,
    time_ms    INTEGER NOT NULL,
    hash       BLOB    NOT NULL
) STRICT;

-- Ids that are used once, each as 16 bytes of a hash with the event that used it, in sorted runs. Random ids in one tree
-- would touch every page at every flush; a sorted run is written front to back, about a page of records in a row, and a
-- few runs of about one size are merged into a larger one. Runs with `until_ms` hold claims that count until then at the latest.
CREATE TABLE claim_page (
    run     INTEGER NOT NULL,
    first   BLOB    NOT NULL,
    records BLOB    NOT NULL
) STRICT;
CREATE INDEX claim_page_by_first ON claim_page (run, first);

CREATE TABLE sorted_run (
    number   INTEGER PRIMARY KEY,
    size     INTEGER NOT NULL,
    until_ms INTEGER NOT NULL
) STRICT;

-- Escrow: balances and the amounts reserved from them.
CREATE TABLE account (
    owner     TEXT PRIMARY KEY,
    available INTEGER NOT NULL,
    held      INTEGER NOT NULL,
    pending   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE reservation (
    event       INTEGER PRIMARY KEY,
    id          BLOB    NOT NULL,
    owner       TEXT    NOT NULL,
    amount      INTEGER NOT NULL,
    memo_size   INTEGER NOT NULL,
    memo_digest BLOB,
    status      TEXT    NOT NULL,
    charged     INTEGER NOT NULL,
    payee       TEXT,
    height      INTEGER,
    settled     INTEGER
) STRICT;
CREATE INDEX reservation_by_owner ON reservation (owner, event);

CREATE TABLE transfer (
    event     INTEGER PRIMARY KEY,
    reference TEXT    NOT NULL,
    kind      TEXT    NOT NULL,
    owner     TEXT    NOT NULL,
    amount    INTEGER NOT NULL,
    reason    TEXT    NOT NULL,
    status    TEXT    NOT NULL,
    height    INTEGER NOT NULL
) STRICT;
CREATE INDEX transfer_by_reference ON transfer (reference);
CREATE INDEX transfer_by_owner ON transfer (owner, event);

-- API keys.
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

-- The chain.
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

-- The queue: jobs with their leases packed, their payloads, and failed jobs until they are requeued or purged.
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
    ended_ms            INTEGER,
    expires_height      INTEGER NOT NULL,
    requeues            INTEGER NOT NULL,
    requeued_ms         INTEGER NOT NULL,
    parent              BLOB    NOT NULL,
    parent_event        INTEGER NOT NULL,
    quorum_n            INTEGER NOT NULL,
    quorum_m            INTEGER NOT NULL,
    is_public           INTEGER NOT NULL,
    leases              BLOB
) STRICT;
CREATE INDEX job_by_caller ON job (caller, event);
CREATE INDEX job_by_state ON job (state, event);
CREATE INDEX job_by_kind ON job (kind, event);

CREATE TABLE spec (
    event INTEGER PRIMARY KEY,
    raw   BLOB    NOT NULL
) STRICT;

CREATE TABLE failed_job (
    event     INTEGER PRIMARY KEY,
    id        BLOB    NOT NULL,
    kind      TEXT    NOT NULL,
    caller    TEXT    NOT NULL,
    max_fee   INTEGER NOT NULL,
    attempts  INTEGER NOT NULL,
    requeues  INTEGER NOT NULL,
    reason    TEXT    NOT NULL,
    failed_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX failed_job_by_caller ON failed_job (caller, event);

-- Providers and their quota of the current epoch. A lease has a row only if its job was evicted and requeued before it.
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
    is_draining       INTEGER NOT NULL,
    current_key       BLOB    NOT NULL,
    cooldowns         INTEGER NOT NULL,
    missed_heartbeats INTEGER NOT NULL,
    jailed_until      INTEGER NOT NULL,
    unstaking         INTEGER NOT NULL,
    unstake_height    INTEGER NOT NULL,
    unstake_ms        INTEGER NOT NULL,
    slashed           INTEGER NOT NULL,
    offended_ms       INTEGER NOT NULL,
    reason            TEXT    NOT NULL,
    status_changed_by          TEXT    NOT NULL,
    denied_by_list    TEXT    NOT NULL,
    load              INTEGER NOT NULL,
    attestor          TEXT    NOT NULL,
    versions          TEXT    NOT NULL,
    prices            BLOB    NOT NULL
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
    duration_ms    INTEGER NOT NULL,
    status         TEXT    NOT NULL,
    acked_ms       INTEGER,
    renewals       INTEGER NOT NULL,
    late_renewals  INTEGER NOT NULL,
    credited_ms    INTEGER NOT NULL,
    submitted      BLOB,
    submitted_size INTEGER NOT NULL,
    submitted_ms   INTEGER,
    reason         TEXT    NOT NULL,
    ended_ms       INTEGER,
    units          INTEGER NOT NULL,
    epoch          INTEGER NOT NULL,
    detail         TEXT    NOT NULL
) STRICT;
CREATE INDEX lease_by_job ON lease (job_id, event);

CREATE TABLE provider_quota (
    provider_id       BLOB PRIMARY KEY,
    epoch             INTEGER NOT NULL,
    ai_reserved       INTEGER NOT NULL,
    ai_committed      INTEGER NOT NULL,
    quantum_reserved  INTEGER NOT NULL,
    quantum_committed INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Results. `caller` and `kind` stay readable after the job's row is purged; the index by digest finds results with the same
-- bytes. A tombstone is what stays of a result that was vacuumed.
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
    reasons         TEXT    NOT NULL,
    caller          TEXT    NOT NULL,
    kind            TEXT    NOT NULL,
    earliest        INTEGER NOT NULL,
    is_public       INTEGER NOT NULL
) STRICT;
CREATE INDEX result_by_digest ON result (result_digest);
CREATE INDEX result_by_caller ON result (caller, event);

CREATE TABLE leaf (
    place  INTEGER PRIMARY KEY,
    height INTEGER NOT NULL,
    raw    BLOB    NOT NULL
) STRICT;

CREATE TABLE consumption (
    result   INTEGER PRIMARY KEY,
    event    INTEGER NOT NULL,
    task_id  BLOB    NOT NULL,
    caller   TEXT    NOT NULL,
    kind     TEXT    NOT NULL,
    tx_hash  BLOB    NOT NULL,
    earliest INTEGER NOT NULL,
    height   INTEGER NOT NULL
) STRICT;

CREATE TABLE verdict (
    event       INTEGER PRIMARY KEY,
    task_id     BLOB    NOT NULL,
    lease_id    BLOB    NOT NULL,
    provider_id BLOB    NOT NULL,
    method      TEXT    NOT NULL,
    digest      BLOB,
    verdict     TEXT    NOT NULL,
    reasons     TEXT    NOT NULL,
    at_ms       INTEGER NOT NULL
) STRICT;
CREATE INDEX verdict_by_task ON verdict (task_id, event);

CREATE TABLE tombstone (
    event   INTEGER PRIMARY KEY,
    task_id BLOB    NOT NULL,
    height  INTEGER NOT NULL,
    leaf    INTEGER NOT NULL
) STRICT;

-- Blobs (BLB-002): one row for each blob of each block, never deleted; and the results that are in them.
CREATE TABLE blob (
    event          INTEGER PRIMARY KEY,
    height         INTEGER NOT NULL,
    number         INTEGER NOT NULL,
    block_hash     BLOB NOT NULL,
    proposer       BLOB NOT NULL,
    status         TEXT NOT NULL,
    versioned_hash BLOB NOT NULL,
    commitment     BLOB NOT NULL,
    proof          BLOB NOT NULL,
    keccak         BLOB NOT NULL,
    item_id        TEXT NOT NULL,
    provider_id    TEXT NOT NULL,
    locator        TEXT NOT NULL,
    archived_by    BLOB NOT NULL,
    archived_at    INTEGER NOT NULL,
    assurance      TEXT NOT NULL,
    signature      BLOB NOT NULL,
    alternates     TEXT NOT NULL,
    attempts       INTEGER NOT NULL,
    retry_ms       INTEGER NOT NULL,
    reason         TEXT NOT NULL,
    is_pruned      INTEGER NOT NULL
) STRICT;
CREATE INDEX blob_by_height ON blob (height, event);
CREATE INDEX blob_by_status ON blob (status, event);
CREATE INDEX blob_by_hash ON blob (versioned_hash);

CREATE TABLE blob_part (
    place         INTEGER PRIMARY KEY,
    blob          INTEGER NOT NULL,
    task_id       BLOB NOT NULL,
    result_digest BLOB NOT NULL,
    start        INTEGER NOT NULL,
    length        INTEGER NOT NULL
) STRICT;
CREATE INDEX blob_part_by_blob ON blob_part (blob, place);
CREATE INDEX blob_part_by_task ON blob_part (task_id, place);
CREATE INDEX blob_part_by_digest ON blob_part (result_digest, place);

-- Evidence: one watermark a session, the records, and records that were rejected.
CREATE TABLE watermark (
    id          TEXT PRIMARY KEY,
    provider_id BLOB    NOT NULL,
    channel     TEXT    NOT NULL,
    session     TEXT    NOT NULL,
    acked       INTEGER NOT NULL,
    ending      INTEGER NOT NULL,
    at_ms       INTEGER NOT NULL,
    sealed_ms   INTEGER NOT NULL,
    pruned      INTEGER NOT NULL
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

CREATE TABLE dead_letter (
    event       INTEGER PRIMARY KEY,
    provider_id BLOB    NOT NULL,
    channel     TEXT    NOT NULL,
    session     TEXT    NOT NULL,
    sequence    INTEGER NOT NULL,
    name        TEXT    NOT NULL,
    reason      TEXT    NOT NULL,
    size        INTEGER NOT NULL,
    digest      BLOB    NOT NULL,
    at_ms       INTEGER NOT NULL,
    status      TEXT    NOT NULL,
    ended_ms    INTEGER NOT NULL,
    note        TEXT    NOT NULL
) STRICT;
CREATE INDEX dead_letter_by_channel ON dead_letter (channel, event);
