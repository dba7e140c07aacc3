-- The projection: one row for each record, claims in sorted runs, one checkpoint.
-- The columns of a table have the order of its record's fields.
-- Names are ordered by their bytes (COLLATE "C"), as on every store. Rows that change often leave space on their page.

-- How far the tables are complete: one row, written in the transaction of the rows it covers.
CREATE TABLE checkpoint (
    one        bigint PRIMARY KEY CHECK (one = 1),
    number     bigint NOT NULL,
    term       bigint NOT NULL,
    last_event bigint NOT NULL,
    time_ms    bigint NOT NULL,
    hash       bytea NOT NULL
);

-- Ids that are used once, each as 16 bytes of a hash with the event that used it, in sorted runs. Random ids in one tree
-- would touch every page at every flush; a sorted run is written front to back, about a page of records in a row, and a
-- few runs of about one size are merged into a larger one. Runs with `until_ms` hold claims that count until then at the latest.
CREATE TABLE claim_page (
    run     bigint NOT NULL,
    first   bytea NOT NULL,
    records bytea NOT NULL
);
CREATE INDEX claim_page_by_first ON claim_page (run, first);
ALTER TABLE claim_page ALTER COLUMN records SET STORAGE PLAIN;

CREATE TABLE sorted_run (
    number   bigint PRIMARY KEY,
    size     bigint NOT NULL,
    until_ms bigint NOT NULL
);

-- Escrow: balances and the amounts reserved from them.
CREATE TABLE account (
    owner     text COLLATE "C" PRIMARY KEY,
    available bigint NOT NULL,
    held      bigint NOT NULL,
    pending   bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE reservation (
    event       bigint PRIMARY KEY,
    id          bytea NOT NULL,
    owner       text COLLATE "C" NOT NULL,
    amount      bigint NOT NULL,
    memo_size   bigint NOT NULL,
    memo_digest bytea,
    status      text COLLATE "C" NOT NULL,
    charged     bigint NOT NULL,
    payee       text COLLATE "C",
    height      bigint,
    settled     bigint
) WITH (fillfactor = 80);
CREATE INDEX reservation_by_owner ON reservation (owner, event);

CREATE TABLE transfer (
    event     bigint PRIMARY KEY,
    reference text COLLATE "C" NOT NULL,
    kind      text COLLATE "C" NOT NULL,
    owner     text COLLATE "C" NOT NULL,
    amount    bigint NOT NULL,
    reason    text COLLATE "C" NOT NULL,
    status    text COLLATE "C" NOT NULL,
    height    bigint NOT NULL
);
CREATE INDEX transfer_by_reference ON transfer (reference);
CREATE INDEX transfer_by_owner ON transfer (owner, event);

-- API keys.
CREATE TABLE key (
    id           text COLLATE "C" PRIMARY KEY,
    event        bigint NOT NULL,
    role         text COLLATE "C" NOT NULL,
    account      text COLLATE "C",
    tier         text COLLATE "C" NOT NULL,
    scopes       text COLLATE "C" NOT NULL,
    label        text COLLATE "C" NOT NULL,
    secret       bytea NOT NULL,
    made_ms      bigint NOT NULL,
    expires_ms   bigint,
    revoked_ms   bigint,
    old_secret   bytea,
    old_until_ms bigint NOT NULL
);

-- The chain.
CREATE TABLE block (
    event        bigint PRIMARY KEY,
    height       bigint NOT NULL,
    hash         bytea NOT NULL,
    status       text COLLATE "C" NOT NULL,
    parent       bytea NOT NULL,
    time_ms      bigint NOT NULL,
    proposer     bytea NOT NULL,
    beacon       bytea NOT NULL,
    first_event  bigint NOT NULL,
    last_event   bigint NOT NULL,
    tx_count     bigint NOT NULL,
    tx_root      bytea NOT NULL,
    result_count bigint NOT NULL,
    result_root  bytea NOT NULL,
    blob_count   bigint NOT NULL,
    blob_root    bytea NOT NULL,
    log_size     bigint NOT NULL,
    log_root     bytea NOT NULL,
    signature    bytea NOT NULL
);
CREATE INDEX block_by_height ON block (height, event);

-- The queue: jobs with their leases packed, their payloads, and failed jobs until they are requeued or purged.
CREATE TABLE job (
    event               bigint PRIMARY KEY,
    id                  bytea NOT NULL,
    kind                text COLLATE "C" NOT NULL,
    caller              text COLLATE "C" NOT NULL,
    tier                text COLLATE "C" NOT NULL,
    height              bigint NOT NULL,
    tx_hash             bytea NOT NULL,
    nonce               bigint NOT NULL,
    request_hash        bytea NOT NULL,
    size_bytes          bigint NOT NULL,
    spec_digest         bytea NOT NULL,
    max_fee             bigint NOT NULL,
    units               bigint NOT NULL,
    priority            bigint NOT NULL,
    enqueue_ms          bigint NOT NULL,
    expires_ms          bigint NOT NULL,
    requirements        bytea NOT NULL,
    proof               text COLLATE "C" NOT NULL,
    state               text COLLATE "C" NOT NULL,
    attempts            bigint NOT NULL,
    failures            bigint NOT NULL,
    not_before_ms       bigint NOT NULL,
    relative_expires_ms bigint,
    charged             bigint,
    payee               text COLLATE "C",
    settled_height      bigint,
    reason              text COLLATE "C" NOT NULL,
    ended_ms            bigint,
    expires_height      bigint NOT NULL,
    requeues            bigint NOT NULL,
    requeued_ms         bigint NOT NULL,
    parent              bytea NOT NULL,
    parent_event        bigint NOT NULL,
    quorum_n            bigint NOT NULL,
    quorum_m            bigint NOT NULL,
    is_public           bigint NOT NULL,
    leases              bytea
);
CREATE INDEX job_by_caller ON job (caller, event);
CREATE INDEX job_by_state ON job (state, event);
CREATE INDEX job_by_kind ON job (kind, event);

CREATE TABLE spec (
    event bigint PRIMARY KEY,
    raw   bytea NOT NULL
);

CREATE TABLE failed_job (
    event     bigint PRIMARY KEY,
    id        bytea NOT NULL,
    kind      text COLLATE "C" NOT NULL,
    caller    text COLLATE "C" NOT NULL,
    max_fee   bigint NOT NULL,
    attempts  bigint NOT NULL,
    requeues  bigint NOT NULL,
    reason    text COLLATE "C" NOT NULL,
    failed_ms bigint NOT NULL
);
CREATE INDEX failed_job_by_caller ON failed_job (caller, event);

-- Providers and their quota of the current epoch. A lease has a row only if its job was evicted and requeued before it.
CREATE TABLE provider (
    id                bytea PRIMARY KEY,
    event             bigint NOT NULL,
    public            bytea NOT NULL,
    name              text COLLATE "C" NOT NULL,
    account           text COLLATE "C" NOT NULL,
    capabilities      bytea NOT NULL,
    region            text COLLATE "C" NOT NULL,
    price             bigint NOT NULL,
    slots             bigint NOT NULL,
    attested_until_ms bigint NOT NULL,
    registered_ms     bigint NOT NULL,
    status            text COLLATE "C" NOT NULL,
    stake             bigint NOT NULL,
    health_ppm        bigint NOT NULL,
    heartbeat_ms      bigint NOT NULL,
    leases            bigint NOT NULL,
    completed         bigint NOT NULL,
    failed            bigint NOT NULL,
    failures_in_row   bigint NOT NULL,
    cooling_until_ms  bigint NOT NULL,
    is_draining       bigint NOT NULL,
    current_key       bytea NOT NULL,
    cooldowns         bigint NOT NULL,
    missed_heartbeats bigint NOT NULL,
    jailed_until      bigint NOT NULL,
    unstaking         bigint NOT NULL,
    unstake_height    bigint NOT NULL,
    unstake_ms        bigint NOT NULL,
    slashed           bigint NOT NULL,
    offended_ms       bigint NOT NULL,
    reason            text COLLATE "C" NOT NULL,
    status_changed_by          text COLLATE "C" NOT NULL,
    denied_by_list    text COLLATE "C" NOT NULL,
    load              bigint NOT NULL,
    attestor          text COLLATE "C" NOT NULL,
    versions          text COLLATE "C" NOT NULL,
    prices            bytea NOT NULL
);

CREATE TABLE lease (
    event          bigint PRIMARY KEY,
    id             bytea NOT NULL,
    job_id         bytea NOT NULL,
    provider_id    bytea NOT NULL,
    attempt        bigint NOT NULL,
    t_start_ms     bigint NOT NULL,
    t_deadline_ms  bigint NOT NULL,
    renew_by_ms    bigint NOT NULL,
    ack_by_ms      bigint NOT NULL,
    price          bigint NOT NULL,
    duration_ms    bigint NOT NULL,
    status         text COLLATE "C" NOT NULL,
    acked_ms       bigint,
    renewals       bigint NOT NULL,
    late_renewals  bigint NOT NULL,
    credited_ms    bigint NOT NULL,
    submitted      bytea,
    submitted_size bigint NOT NULL,
    submitted_ms   bigint,
    reason         text COLLATE "C" NOT NULL,
    ended_ms       bigint,
    units          bigint NOT NULL,
    epoch          bigint NOT NULL,
    detail         text COLLATE "C" NOT NULL
);
CREATE INDEX lease_by_job ON lease (job_id, event);

CREATE TABLE provider_quota (
    provider_id       bytea PRIMARY KEY,
    epoch             bigint NOT NULL,
    ai_reserved       bigint NOT NULL,
    ai_committed      bigint NOT NULL,
    quantum_reserved  bigint NOT NULL,
    quantum_committed bigint NOT NULL
);

-- Results. `caller` and `kind` stay readable after the job's row is purged; the index by digest finds results with the same
-- bytes. A tombstone is what stays of a result that was vacuumed.
CREATE TABLE result (
    event           bigint PRIMARY KEY,
    task_id         bytea NOT NULL,
    status          text COLLATE "C" NOT NULL,
    height_resolved bigint NOT NULL,
    proof_nullifier bytea NOT NULL,
    result_digest   bytea NOT NULL,
    result_size     bigint NOT NULL,
    mime_type       text COLLATE "C" NOT NULL,
    da_commitment   bytea,
    expires_at      bigint NOT NULL,
    leaf_index      bigint NOT NULL,
    provider_id     bytea NOT NULL,
    payee           text COLLATE "C" NOT NULL,
    charged         bigint NOT NULL,
    method          text COLLATE "C" NOT NULL,
    reasons         text COLLATE "C" NOT NULL,
    caller          text COLLATE "C" NOT NULL,
    kind            text COLLATE "C" NOT NULL,
    earliest        bigint NOT NULL,
    is_public       bigint NOT NULL
);
CREATE INDEX result_by_digest ON result (result_digest);
CREATE INDEX result_by_caller ON result (caller, event);

CREATE TABLE leaf (
    place  bigint PRIMARY KEY,
    height bigint NOT NULL,
    raw    bytea NOT NULL
);

CREATE TABLE consumption (
    result   bigint PRIMARY KEY,
    event    bigint NOT NULL,
    task_id  bytea NOT NULL,
    caller   text COLLATE "C" NOT NULL,
    kind     text COLLATE "C" NOT NULL,
    tx_hash  bytea NOT NULL,
    earliest bigint NOT NULL,
    height   bigint NOT NULL
);

CREATE TABLE verdict (
    event       bigint PRIMARY KEY,
    task_id     bytea NOT NULL,
    lease_id    bytea NOT NULL,
    provider_id bytea NOT NULL,
    method      text COLLATE "C" NOT NULL,
    digest      bytea,
    verdict     text COLLATE "C" NOT NULL,
    reasons     text COLLATE "C" NOT NULL,
    at_ms       bigint NOT NULL
);
CREATE INDEX verdict_by_task ON verdict (task_id, event);

CREATE TABLE tombstone (
    event   bigint PRIMARY KEY,
    task_id bytea NOT NULL,
    height  bigint NOT NULL,
    leaf    bigint NOT NULL
);

-- Blobs (BLB-002): one row for each blob of each block, never deleted; and the results that are in them.
CREATE TABLE blob (
    event          bigint PRIMARY KEY,
    height         bigint NOT NULL,
    number         bigint NOT NULL,
    block_hash     bytea NOT NULL,
    proposer       bytea NOT NULL,
    status         text COLLATE "C" NOT NULL,
    versioned_hash bytea NOT NULL,
    commitment     bytea NOT NULL,
    proof          bytea NOT NULL,
    keccak         bytea NOT NULL,
    item_id        text COLLATE "C" NOT NULL,
    provider_id    text COLLATE "C" NOT NULL,
    locator        text COLLATE "C" NOT NULL,
    archived_by    bytea NOT NULL,
    archived_at    bigint NOT NULL,
    assurance      text COLLATE "C" NOT NULL,
    signature      bytea NOT NULL,
    alternates     text COLLATE "C" NOT NULL,
    attempts       bigint NOT NULL,
    retry_ms       bigint NOT NULL,
    reason         text COLLATE "C" NOT NULL,
    is_pruned      bigint NOT NULL
);
CREATE INDEX blob_by_height ON blob (height, event);
CREATE INDEX blob_by_status ON blob (status, event);
CREATE INDEX blob_by_hash ON blob (versioned_hash);

CREATE TABLE blob_part (
    place         bigint PRIMARY KEY,
    blob          bigint NOT NULL,
    task_id       bytea NOT NULL,
    result_digest bytea NOT NULL,
    start        bigint NOT NULL,
    length        bigint NOT NULL
);
CREATE INDEX blob_part_by_blob ON blob_part (blob, place);
CREATE INDEX blob_part_by_task ON blob_part (task_id, place);
CREATE INDEX blob_part_by_digest ON blob_part (result_digest, place);

-- Evidence: one watermark a session, the records, and records that were rejected.
CREATE TABLE watermark (
    id          text COLLATE "C" PRIMARY KEY,
    provider_id bytea NOT NULL,
    channel     text COLLATE "C" NOT NULL,
    session     text COLLATE "C" NOT NULL,
    acked       bigint NOT NULL,
    ending      bigint NOT NULL,
    at_ms       bigint NOT NULL,
    sealed_ms   bigint NOT NULL,
    pruned      bigint NOT NULL
);

CREATE TABLE evidence (
    event          bigint PRIMARY KEY,
    provider_id    bytea NOT NULL,
    channel        text COLLATE "C" NOT NULL,
    session        text COLLATE "C" NOT NULL,
    first_sequence bigint NOT NULL,
    last_sequence  bigint NOT NULL,
    size           bigint NOT NULL,
    digest         bytea NOT NULL,
    lines          bytea
);
CREATE INDEX evidence_by_channel ON evidence (channel, session, event);

CREATE TABLE dead_letter (
    event       bigint PRIMARY KEY,
    provider_id bytea NOT NULL,
    channel     text COLLATE "C" NOT NULL,
    session     text COLLATE "C" NOT NULL,
    sequence    bigint NOT NULL,
    name        text COLLATE "C" NOT NULL,
    reason      text COLLATE "C" NOT NULL,
    size        bigint NOT NULL,
    digest      bytea NOT NULL,
    at_ms       bigint NOT NULL,
    status      text COLLATE "C" NOT NULL,
    ended_ms    bigint NOT NULL,
    note        text COLLATE "C" NOT NULL
);
CREATE INDEX dead_letter_by_channel ON dead_letter (channel, event);
