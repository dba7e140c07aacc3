-- The projection: rows keyed by name or by the event that made them, claims in sorted lots, one checkpoint.
-- Names are ordered by their bytes, as on every store; the rows that change leave room for it on their page.
CREATE TABLE checkpoint (
    one        bigint PRIMARY KEY CHECK (one = 1),
    number     bigint NOT NULL,
    epoch      bigint NOT NULL,
    last_event bigint NOT NULL,
    time_ms    bigint NOT NULL,
    hash       bytea  NOT NULL
);

CREATE TABLE account (
    owner     text COLLATE "C" PRIMARY KEY,
    available bigint NOT NULL,
    held      bigint NOT NULL,
    pending   bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE hold (
    event       bigint PRIMARY KEY,
    id          bytea  NOT NULL,
    owner       text COLLATE "C" NOT NULL,
    amount      bigint NOT NULL,
    memo_size   bigint NOT NULL,
    memo_digest bytea,
    status      text COLLATE "C" NOT NULL,
    charged     bigint NOT NULL,
    payee       text COLLATE "C",
    height      bigint,
    settled     bigint
) WITH (fillfactor = 80);
CREATE INDEX hold_by_owner ON hold (owner, event);

-- Random ids in one tree would touch every page at every flush; a sorted lot is written front to back, and a few
-- lots of one size become one larger lot.
CREATE TABLE claim (
    lot      bigint NOT NULL,
    key      bytea  NOT NULL,
    event    bigint NOT NULL,
    checksum bigint NOT NULL,
    PRIMARY KEY (lot, key)
);

CREATE TABLE lot (
    number bigint PRIMARY KEY,
    size   bigint NOT NULL
);
