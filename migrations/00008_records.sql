-- +goose Up

-- The end of a run that succeeded touches no index: no column changes that stands in one, and half of each page is
-- kept for such ends. So what is still open, and the newest success, are noted with the progress of the lease, and
-- the rare outcomes have a column of their own. That column rewrites the table.
ALTER TABLE progress
    ADD COLUMN open    bigint[] NOT NULL DEFAULT '{}',
    ADD COLUMN success bigint;

COMMENT ON COLUMN progress.open IS 'runs of the lease that were open when it last claimed; every one that still is, is among them';
COMMENT ON COLUMN progress.success IS 'the newest run that had succeeded by then, unless it is among those of open';

-- Whoever claims waits for the rewriting, and must not claim between what is noted here and its end.
LOCK TABLE progress, runs IN ACCESS EXCLUSIVE MODE;

UPDATE progress p
   SET open    = ARRAY (SELECT r.id FROM runs r WHERE r.lease = p.lease AND r.ended_at IS NULL ORDER BY r.id),
       success = (SELECT r.id FROM runs r WHERE r.lease = p.lease AND r.outcome = 'success' ORDER BY r.id DESC LIMIT 1);

DROP INDEX runs_open;
DROP INDEX runs_success;
DROP INDEX runs_but_success_of_job;
DROP INDEX runs_but_success;

ALTER TABLE runs SET (fillfactor = 50);
ALTER TABLE runs ADD COLUMN but_success text GENERATED ALWAYS AS (nullif(outcome, 'success')) STORED;

COMMENT ON COLUMN runs.but_success IS 'the outcome, but for success: NULL while it runs and if it succeeded';

CREATE INDEX runs_but_success ON runs (but_success, id DESC) WHERE but_success IS NOT NULL;
CREATE INDEX runs_but_success_of_job ON runs (job, but_success, id DESC) WHERE but_success IS NOT NULL;

-- +goose Down
DROP INDEX runs_but_success_of_job;
DROP INDEX runs_but_success;
ALTER TABLE runs DROP COLUMN but_success;
ALTER TABLE runs RESET (fillfactor);
CREATE INDEX runs_open ON runs (lease) WHERE ended_at IS NULL;
CREATE INDEX runs_success ON runs (lease, id DESC) WHERE outcome = 'success';
CREATE INDEX runs_but_success ON runs (outcome, id DESC) WHERE outcome <> 'success';
CREATE INDEX runs_but_success_of_job ON runs (job, outcome, id DESC) WHERE outcome <> 'success';
ALTER TABLE progress DROP COLUMN success, DROP COLUMN open;
