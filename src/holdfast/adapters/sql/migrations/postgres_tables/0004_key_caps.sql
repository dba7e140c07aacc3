-- What a key may spend in a day, and what it has spent (SEC-002).
ALTER TABLE key ADD COLUMN daily_cap bigint NOT NULL DEFAULT 0;
ALTER TABLE key ADD COLUMN spent_day bigint NOT NULL DEFAULT 0;
ALTER TABLE key ADD COLUMN spent bigint NOT NULL DEFAULT 0;
