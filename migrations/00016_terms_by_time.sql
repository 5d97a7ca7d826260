-- +goose NO TRANSACTION
-- +goose Up

-- The page of events reads terms by when they began and ended. CONCURRENTLY, for every takeover writes a
-- term, and is not to wait until an index of all of them is built. What an attempt that was cut off has
-- left is of no use, and goes first.
DROP INDEX CONCURRENTLY IF EXISTS terms_began;
CREATE INDEX CONCURRENTLY terms_began ON terms (acquired_at);
DROP INDEX CONCURRENTLY IF EXISTS terms_ended;
CREATE INDEX CONCURRENTLY terms_ended ON terms (ended_at) WHERE ended_at IS NOT NULL;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS terms_began;
DROP INDEX CONCURRENTLY IF EXISTS terms_ended;
