-- Providers, leases and jobs: what matching and slashing keep.

-- A lease's part of its provider's quota, how a job ends by height and how often it was put back.
ALTER TABLE lease ADD COLUMN units INTEGER NOT NULL DEFAULT 0;
ALTER TABLE lease ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN expires_height INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN requeues INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN requeued_ms INTEGER NOT NULL DEFAULT 0;

-- Jobs that failed too often, until somebody puts them back or their time is over.
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
INSERT INTO failed_job (event, id, kind, caller, max_fee, attempts, requeues, reason, failed_ms)
SELECT event, id, kind, caller, max_fee, attempts, 0, reason, ended_ms FROM job WHERE state = 'FAILED';

CREATE TABLE provider_quota (
    provider_id       BLOB PRIMARY KEY,
    epoch             INTEGER NOT NULL,
    ai_reserved       INTEGER NOT NULL,
    ai_committed      INTEGER NOT NULL,
    quantum_reserved  INTEGER NOT NULL,
    quantum_committed INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- How a provider is, what it has lost, what it may still lose, and who said so.
ALTER TABLE provider ADD COLUMN current_key BLOB NOT NULL DEFAULT x'';
ALTER TABLE provider ADD COLUMN cooldowns INTEGER NOT NULL DEFAULT 0;
ALTER TABLE provider ADD COLUMN missed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE provider ADD COLUMN jailed_until INTEGER NOT NULL DEFAULT 0;
ALTER TABLE provider ADD COLUMN unstaking INTEGER NOT NULL DEFAULT 0;
ALTER TABLE provider ADD COLUMN unstake_height INTEGER NOT NULL DEFAULT 0;
ALTER TABLE provider ADD COLUMN unstake_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE provider ADD COLUMN slashed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE provider ADD COLUMN offended_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE provider ADD COLUMN reason TEXT NOT NULL DEFAULT '';
ALTER TABLE provider ADD COLUMN moved_by TEXT NOT NULL DEFAULT '';
ALTER TABLE provider ADD COLUMN barred TEXT NOT NULL DEFAULT '';
ALTER TABLE provider ADD COLUMN load INTEGER NOT NULL DEFAULT 0;
ALTER TABLE provider ADD COLUMN attestor TEXT NOT NULL DEFAULT '';
ALTER TABLE provider ADD COLUMN versions TEXT NOT NULL DEFAULT '';
