-- Keys that open the doors, blocks of the chain, jobs and their payloads.
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
    ended_ms            bigint
);
CREATE INDEX job_by_caller ON job (caller, event);

CREATE TABLE spec (
    event bigint PRIMARY KEY,
    raw   bytea NOT NULL
);
