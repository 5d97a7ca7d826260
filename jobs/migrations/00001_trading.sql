-- +goose Up

-- bridge_health: what is pinged, and what came of it.

CREATE TABLE bridges (
    id         text    PRIMARY KEY,
    kind       text    NOT NULL CHECK (kind IN ('http', 'tcp')),
    address    text    NOT NULL,
    timeout_ms integer CHECK (timeout_ms > 0)
);

COMMENT ON COLUMN bridges.address IS 'a URL for http, host:port for tcp';
COMMENT ON COLUMN bridges.timeout_ms IS 'NULL: the job''s own limit';

-- No foreign key to bridges: its check would lock a row that others edit.
CREATE TABLE bridge_status (
    bridge_id  text        PRIMARY KEY,
    health     text        NOT NULL CHECK (health IN ('UP', 'DOWN')),
    reason     text        NOT NULL DEFAULT '',
    latency_ms double precision,
    checked_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

COMMENT ON COLUMN bridge_status.reason IS 'why it is DOWN';
COMMENT ON COLUMN bridge_status.latency_ms IS 'how long it took to answer; NULL where it did not';
SELECT fence_protect('bridge_status');

-- reconciliation: the engine's trades, where each account's statement is, and
-- on which trades the two disagree.

CREATE TABLE accounts (
    id        text PRIMARY KEY,
    statement text NOT NULL
);

COMMENT ON COLUMN accounts.statement IS 'the broker''s statement as CSV: an http(s) URL, or a file''s path';

CREATE TABLE trades (
    account    text    NOT NULL,
    trade_id   text    NOT NULL,
    trade_date date    NOT NULL,
    symbol     text    NOT NULL,
    side       text    NOT NULL CHECK (side IN ('buy', 'sell')),
    quantity   numeric NOT NULL,
    price      numeric NOT NULL,
    PRIMARY KEY (account, trade_id)
);

CREATE INDEX trades_of_day ON trades (account, trade_date);

CREATE TABLE breaks (
    account    text        NOT NULL,
    trade_id   text        NOT NULL,
    kind       text        NOT NULL CHECK (kind IN ('missing_at_broker', 'missing_at_engine', 'unreadable',
                                                    'trade_date', 'symbol', 'side', 'quantity', 'price')),
    trade_date date        NOT NULL,
    engine     text        NOT NULL DEFAULT '',
    broker     text        NOT NULL DEFAULT '',
    found_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    closed_at  timestamptz,
    PRIMARY KEY (account, trade_id, kind)
);

CREATE INDEX breaks_open ON breaks (account, trade_date) WHERE closed_at IS NULL;
COMMENT ON COLUMN breaks.kind IS 'the field on which the two disagree, or which side lacks the trade';
COMMENT ON COLUMN breaks.closed_at IS 'when a later statement no longer showed it; NULL while it is open';
SELECT fence_protect('breaks');

-- symbol_sync: the venues, their symbols, and the version of the list that these came from.

CREATE TABLE venues (
    name text PRIMARY KEY,
    url  text NOT NULL
);

CREATE TABLE symbols (
    venue      text        NOT NULL,
    symbol     text        NOT NULL,
    name       text        NOT NULL DEFAULT '',
    tick_size  numeric     NOT NULL,
    listed_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    retired_at timestamptz,
    PRIMARY KEY (venue, symbol)
);

COMMENT ON COLUMN symbols.retired_at IS 'when the venue''s list no longer had it; NULL while it is traded';
SELECT fence_protect('symbols');

CREATE TABLE symbol_lists (
    venue     text        PRIMARY KEY,
    url       text        NOT NULL,
    etag      text        NOT NULL DEFAULT '',
    synced_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

COMMENT ON COLUMN symbol_lists.etag IS 'the version of the list in symbols, as the url named it';
SELECT fence_protect('symbol_lists');

-- quote_watch: the feeds whose quotes must keep coming.

CREATE TABLE feeds (
    name text PRIMARY KEY,
    url  text NOT NULL
);

-- +goose Down
DROP TABLE feeds;
DROP TABLE symbol_lists;
DROP TABLE symbols;
DROP TABLE venues;
DROP TABLE breaks;
DROP TABLE trades;
DROP TABLE accounts;
DROP TABLE bridge_status;
DROP TABLE bridges;
