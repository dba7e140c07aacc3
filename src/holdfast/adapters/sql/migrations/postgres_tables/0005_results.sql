-- Results: consumption, verdicts, tiers, retention.

-- Whose a result is, so that it can be used when its job's row is gone; and who used it when.
ALTER TABLE result ADD COLUMN caller text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE result ADD COLUMN kind text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE result ADD COLUMN earliest bigint NOT NULL DEFAULT 0;

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

-- Whether another result has the same bytes is asked before they are deleted.
CREATE INDEX result_by_digest ON result (result_digest);

-- What stays of a record that was vacuumed.
CREATE TABLE tombstone (
    event   bigint PRIMARY KEY,
    task_id bytea NOT NULL,
    height  bigint NOT NULL,
    leaf    bigint NOT NULL
);
CREATE INDEX tombstone_by_task ON tombstone (task_id);
