-- The journal: packed, hash-chained batches, and beside them the payloads too large for a batch. Partitions by number
-- are created ahead and dropped whole. Bodies do not compress further: EXTERNAL stores them as they are.
CREATE TABLE batch (
    number      bigint PRIMARY KEY,
    term        bigint NOT NULL,
    first_event bigint NOT NULL,
    last_event  bigint NOT NULL,
    time_ms     bigint NOT NULL,
    parent      bytea  NOT NULL,
    hash        bytea  NOT NULL,
    body        bytea  NOT NULL
) PARTITION BY RANGE (number);
ALTER TABLE batch ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX batch_by_event ON batch (last_event);

CREATE TABLE attachment (
    batch  bigint NOT NULL,
    digest bytea  NOT NULL,
    raw    bytea  NOT NULL,
    PRIMARY KEY (batch, digest)
) PARTITION BY RANGE (batch);
ALTER TABLE attachment ALTER COLUMN raw SET STORAGE EXTERNAL;

-- The partitions that exist: each holds the numbers from first_number up to, not including, end_number.
CREATE TABLE journal_partition (
    first_number bigint PRIMARY KEY,
    end_number   bigint NOT NULL
);
