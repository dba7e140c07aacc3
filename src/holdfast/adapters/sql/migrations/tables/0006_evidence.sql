-- Evidence: how sessions end and what of them is kept, and dead letters.
ALTER TABLE mark ADD COLUMN ending    INTEGER NOT NULL DEFAULT 0;
ALTER TABLE mark ADD COLUMN at_ms     INTEGER NOT NULL DEFAULT 0;
ALTER TABLE mark ADD COLUMN sealed_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE mark ADD COLUMN pruned    INTEGER NOT NULL DEFAULT 0;

CREATE TABLE dead_letter (
    event       INTEGER PRIMARY KEY,
    provider_id BLOB NOT NULL,
    channel     TEXT NOT NULL,
    session     TEXT NOT NULL,
    sequence    INTEGER NOT NULL,
    name        TEXT NOT NULL,
    reason      TEXT NOT NULL,
    size        INTEGER NOT NULL,
    digest      BLOB NOT NULL,
    at_ms       INTEGER NOT NULL,
    status      TEXT NOT NULL,
    ended_ms    INTEGER NOT NULL,
    note        TEXT NOT NULL
) STRICT;
CREATE INDEX dead_letter_by_channel ON dead_letter (channel, event);
