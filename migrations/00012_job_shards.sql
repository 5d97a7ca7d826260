-- +goose Up

-- How many leases each job has that has, or had, several. It is locked before any of its leases is
-- acquired. All leases of a job share one order of epochs, for its rows change hands with the count.
CREATE TABLE job_shards (
    job        text    PRIMARY KEY,
    n          integer NOT NULL CHECK (n BETWEEN 1 AND 1024),
    acting     integer NOT NULL DEFAULT 1 CHECK (acting BETWEEN 1 AND 1024),
    generation bigint  NOT NULL DEFAULT 0,
    epoch_high bigint  NOT NULL DEFAULT 0 CHECK (epoch_high >= 0)
) WITH (fillfactor = 50);

COMMENT ON COLUMN job_shards.n IS 'the count in force: leases of another are not acquired';
COMMENT ON COLUMN job_shards.acting IS 'the count whose leases were acquired last: those of any other are out of force, nobody''s for a century';
COMMENT ON COLUMN job_shards.generation IS 'how often acting has changed';
COMMENT ON COLUMN job_shards.epoch_high IS 'no lease of the job has had a higher epoch';

-- The generation by whose count the ticks of the lease were last begun. A newer one inherits from it.
ALTER TABLE progress ADD COLUMN generation bigint NOT NULL DEFAULT 0;
CREATE INDEX progress_of_job ON progress (split_part(lease, '.', 1));

-- One key is one run of each lease.
DROP INDEX requests_key;
CREATE UNIQUE INDEX requests_key ON requests (lease, key) WHERE key IS NOT NULL;

-- A lease that is put out of force changes its epoch, as at every end of a count, and begins no term.
-- +goose StatementBegin
DO $do$
BEGIN
    EXECUTE format($sql$
        CREATE OR REPLACE FUNCTION rota_term() RETURNS trigger LANGUAGE plpgsql
            SECURITY DEFINER SET search_path = pg_catalog, %1$I, pg_temp AS $$
        DECLARE
            at     timestamptz := clock_timestamp();
            reason text        := nullif(current_setting('rota.reason', true), '');
        BEGIN
            IF TG_OP = 'UPDATE' THEN
                IF OLD.epoch > 0 AND NEW.epoch <> OLD.epoch THEN
                    UPDATE %1$I.terms
                       SET ended_at   = least(OLD.expires_at, at),
                           end_reason = CASE WHEN OLD.expires_at <= at THEN 'expired'
                                             ELSE coalesce(reason, 'replaced') END
                     WHERE job_name = OLD.job_name AND epoch = OLD.epoch AND ended_at IS NULL;
                ELSIF OLD.epoch > 0 AND NEW.expires_at <= at AND OLD.expires_at > at THEN
                    UPDATE %1$I.terms
                       SET ended_at = at, end_reason = coalesce(reason, 'released')
                     WHERE job_name = OLD.job_name AND epoch = OLD.epoch AND ended_at IS NULL;
                END IF;
            END IF;
            IF NEW.epoch > 0 AND NEW.owner <> '' AND (TG_OP = 'INSERT' OR NEW.epoch <> OLD.epoch) THEN
                INSERT INTO %1$I.terms AS t (job_name, epoch, owner, acquired_at, ended_at, end_reason)
                VALUES (NEW.job_name, NEW.epoch, NEW.owner, NEW.acquired_at,
                        CASE WHEN NEW.expires_at <= at THEN at END,
                        CASE WHEN NEW.expires_at <= at THEN coalesce(reason, 'expired') END)
                ON CONFLICT (job_name, epoch) DO UPDATE
                   SET owner = EXCLUDED.owner, acquired_at = EXCLUDED.acquired_at,
                       ended_at = EXCLUDED.ended_at, end_reason = EXCLUDED.end_reason;
            END IF;
            RETURN NULL;
        END $$ $sql$, current_schema());
END $do$;
-- +goose StatementEnd

-- +goose Down
DROP INDEX requests_key;
UPDATE requests q SET key = NULL WHERE EXISTS (SELECT FROM requests o WHERE o.job = q.job AND o.key = q.key AND o.id < q.id);
CREATE UNIQUE INDEX requests_key ON requests (job, key) WHERE key IS NOT NULL;
DROP INDEX progress_of_job;
ALTER TABLE progress DROP COLUMN generation;
DROP TABLE job_shards;
