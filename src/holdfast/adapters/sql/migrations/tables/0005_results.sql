-- Results: consumption, verdicts, tiers, retention.

-- Whose a result is, so that it can be used when its job's row is gone; and who used it when.
ALTER TABLE result ADD COLUMN caller TEXT NOT NULL DEFAULT '';
ALTER TABLE result ADD COLUMN kind TEXT NOT NULL DEFAULT '';
ALTER TABLE result ADD COLUMN earliest INTEGER NOT NULL DEFAULT 0;

CREATE TABLE consumption (
    result   INTEGER PRIMARY KEY,
    event    INTEGER NOT NULL,
    task_id  BLOB NOT NULL,
    caller   TEXT NOT NULL,
    kind     TEXT NOT NULL,
    tx_hash  BLOB NOT NULL,
    earliest INTEGER NOT NULL,
    height   INTEGER NOT NULL
) STRICT;

CREATE TABLE verdict (
    event       INTEGER PRIMARY KEY,
    task_id     BLOB NOT NULL,
    lease_id    BLOB NOT NULL,
    provider_id BLOB NOT NULL,
    method      TEXT NOT NULL,
    digest      BLOB,
    verdict     TEXT NOT NULL,
    reasons     TEXT NOT NULL,
    at_ms       INTEGER NOT NULL
) STRICT;
CREATE INDEX verdict_by_task ON verdict (task_id, event);

-- Whether another result has the same bytes is asked before they are deleted.
CREATE INDEX result_by_digest ON result (result_digest);

-- What stays of a record that was vacuumed.
CREATE TABLE tombstone (
    event   INTEGER PRIMARY KEY,
    task_id BLOB NOT NULL,
    height  INTEGER NOT NULL,
    leaf    INTEGER NOT NULL
) STRICT;
CREATE INDEX tombstone_by_task ON tombstone (task_id);
