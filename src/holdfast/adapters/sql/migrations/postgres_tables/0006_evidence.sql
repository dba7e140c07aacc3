-- Evidence: how sessions end and what of them is kept, and dead letters.
ALTER TABLE mark ADD COLUMN ending    bigint NOT NULL DEFAULT 0;
ALTER TABLE mark ADD COLUMN at_ms     bigint NOT NULL DEFAULT 0;
ALTER TABLE mark ADD COLUMN sealed_ms bigint NOT NULL DEFAULT 0;
ALTER TABLE mark ADD COLUMN pruned    bigint NOT NULL DEFAULT 0;

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
