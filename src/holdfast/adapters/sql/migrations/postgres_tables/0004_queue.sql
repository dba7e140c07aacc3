-- Providers, leases and jobs: what matching and slashing keep.

-- A lease's part of its provider's quota, how a job ends by height and how often it was put back.
ALTER TABLE lease ADD COLUMN units bigint NOT NULL DEFAULT 0;
ALTER TABLE lease ADD COLUMN epoch bigint NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN expires_height bigint NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN requeues bigint NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN requeued_ms bigint NOT NULL DEFAULT 0;

-- Jobs that failed too often, until somebody puts them back or their time is over.
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
INSERT INTO failed_job (event, id, kind, caller, max_fee, attempts, requeues, reason, failed_ms)
SELECT event, id, kind, caller, max_fee, attempts, 0, reason, ended_ms FROM job WHERE state = 'FAILED';

CREATE TABLE provider_quota (
    provider_id       bytea PRIMARY KEY,
    epoch             bigint NOT NULL,
    ai_reserved       bigint NOT NULL,
    ai_committed      bigint NOT NULL,
    quantum_reserved  bigint NOT NULL,
    quantum_committed bigint NOT NULL
);

-- How a provider is, what it has lost, what it may still lose, and who said so.
ALTER TABLE provider ADD COLUMN current_key bytea NOT NULL DEFAULT '';
ALTER TABLE provider ADD COLUMN cooldowns bigint NOT NULL DEFAULT 0;
ALTER TABLE provider ADD COLUMN missed bigint NOT NULL DEFAULT 0;
ALTER TABLE provider ADD COLUMN jailed_until bigint NOT NULL DEFAULT 0;
ALTER TABLE provider ADD COLUMN unstaking bigint NOT NULL DEFAULT 0;
ALTER TABLE provider ADD COLUMN unstake_height bigint NOT NULL DEFAULT 0;
ALTER TABLE provider ADD COLUMN unstake_ms bigint NOT NULL DEFAULT 0;
ALTER TABLE provider ADD COLUMN slashed bigint NOT NULL DEFAULT 0;
ALTER TABLE provider ADD COLUMN offended_ms bigint NOT NULL DEFAULT 0;
ALTER TABLE provider ADD COLUMN reason text NOT NULL DEFAULT '';
ALTER TABLE provider ADD COLUMN moved_by text NOT NULL DEFAULT '';
ALTER TABLE provider ADD COLUMN barred text NOT NULL DEFAULT '';
ALTER TABLE provider ADD COLUMN load bigint NOT NULL DEFAULT 0;
ALTER TABLE provider ADD COLUMN attestor text NOT NULL DEFAULT '';
ALTER TABLE provider ADD COLUMN versions text NOT NULL DEFAULT '';
