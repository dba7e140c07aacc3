-- Providers, their leases, the results of their work with the log's leaves, and their evidence.
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
    is_draining       bigint NOT NULL
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
    t_ms           bigint NOT NULL,
    status         text COLLATE "C" NOT NULL,
    acked_ms       bigint,
    renewals       bigint NOT NULL,
    late_renewals  bigint NOT NULL,
    forgiven_ms    bigint NOT NULL,
    submitted      bytea,
    submitted_size bigint NOT NULL,
    submitted_ms   bigint,
    reason         text COLLATE "C" NOT NULL,
    ended_ms       bigint
);
CREATE INDEX lease_by_job ON lease (job_id, event);

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
    reasons         text COLLATE "C" NOT NULL
);
CREATE INDEX result_by_task ON result (task_id);

CREATE TABLE leaf (
    place  bigint PRIMARY KEY,
    height bigint NOT NULL,
    raw    bytea NOT NULL
);

CREATE TABLE mark (
    id          text COLLATE "C" PRIMARY KEY,
    provider_id bytea NOT NULL,
    channel     text COLLATE "C" NOT NULL,
    session     text COLLATE "C" NOT NULL,
    acked       bigint NOT NULL
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
