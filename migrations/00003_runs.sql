-- +goose Up

-- How far each lease's schedule has come. Runs are pruned; this is not.
CREATE TABLE progress (
    lease      text        PRIMARY KEY,
    last_tick  timestamptz NOT NULL,
    schedule   text        NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (
    -- Each tick rewrites a row: as for leadership, half-empty pages keep that cheap.
    fillfactor = 50,
    autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0
);

COMMENT ON COLUMN progress.last_tick IS 'the newest tick that was claimed or written off; at first registration, that moment';

-- One row per attempt at a tick. The unique key is what a claim rests on: a tick
-- is claimed by inserting its attempt 1. No foreign key to leadership, for its
-- check would lock the lease row a second time.
CREATE TABLE runs (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    lease      text        NOT NULL,
    job        text        NOT NULL,
    tick       timestamptz NOT NULL,
    attempt    integer     NOT NULL DEFAULT 1 CHECK (attempt >= 1),
    epoch      bigint      NOT NULL,
    owner      text        NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at   timestamptz,
    outcome    text        CHECK (outcome IN ('success', 'failed', 'panicked', 'timed_out', 'cancelled',
                                              'fenced', 'lost', 'skipped', 'missed')),
    error      text,
    refused    integer     NOT NULL DEFAULT 0,
    UNIQUE (lease, tick, attempt),
    CHECK ((ended_at IS NULL) = (outcome IS NULL))
);

CREATE INDEX runs_of_job ON runs (job, id DESC);
-- The runs that a new term of their lease closes as lost.
CREATE INDEX runs_open ON runs (lease) WHERE ended_at IS NULL;
-- The rare runs that had writes refused, for the sums that the page shows.
CREATE INDEX runs_refused ON runs (lease) INCLUDE (refused) WHERE refused > 0;

COMMENT ON COLUMN runs.outcome IS 'NULL while it runs';
COMMENT ON COLUMN runs.refused IS 'how many of its writes the fence refused';

-- +goose Down
DROP TABLE runs;
DROP TABLE progress;
