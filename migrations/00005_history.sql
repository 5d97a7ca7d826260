-- +goose Up

-- The runs of one outcome, of all jobs or of one, newest first. Successes are most of the history,
-- are found among its newest rows, and are left out, so that only what is rare pays for it.
CREATE INDEX runs_but_success ON runs (outcome, id DESC) WHERE outcome <> 'success';
CREATE INDEX runs_but_success_of_job ON runs (job, outcome, id DESC) WHERE outcome <> 'success';

-- +goose Down
DROP INDEX runs_but_success_of_job;
DROP INDEX runs_but_success;
