-- The projection: rows keyed by name or by the event that made them, claims in sorted lots, one checkpoint.
CREATE TABLE checkpoint (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    number     INTEGER NOT NULL,
    epoch      INTEGER NOT NULL,
    last_event INTEGER NOT NULL,
    time_ms    INTEGER NOT NULL,
    hash       BLOB    NOT NULL
) STRICT;

CREATE TABLE account (
    owner     TEXT PRIMARY KEY,
    available INTEGER NOT NULL,
    held      INTEGER NOT NULL,
    pending   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE hold (
    event       INTEGER PRIMARY KEY,
    id          BLOB    NOT NULL,
    owner       TEXT    NOT NULL,
    amount      INTEGER NOT NULL,
    memo_size   INTEGER NOT NULL,
    memo_digest BLOB,
    status      TEXT    NOT NULL,
    charged     INTEGER NOT NULL,
    payee       TEXT,
    height      INTEGER,
    settled     INTEGER
) STRICT;
CREATE INDEX hold_by_owner ON hold (owner, event);

-- Random ids in one tree would touch every page at every flush; a sorted lot is written front to back, and a few
-- lots of one size become one larger lot.
CREATE TABLE claim (
    lot      INTEGER NOT NULL,
    key      BLOB    NOT NULL,
    event    INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    PRIMARY KEY (lot, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE lot (
    number INTEGER PRIMARY KEY,
    size   INTEGER NOT NULL
) STRICT;
