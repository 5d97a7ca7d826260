-- +goose NO TRANSACTION
-- +goose Up

-- Each member looks at the shards by themselves at every heartbeat, and would read all other leases for
-- them once more. CONCURRENTLY, for renewals are not to wait until it is built. A renewal changes no name,
-- and stays HOT.
DROP INDEX CONCURRENTLY IF EXISTS leadership_shards;
CREATE INDEX CONCURRENTLY leadership_shards ON leadership (job_name) WHERE strpos(job_name, '.') > 0;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS leadership_shards;
