-- +goose Up

-- The epoch of each lease once more, in a row that nothing but a change of epoch ever updates: it is
-- what fenced writes lock. They must not lock the row of leadership, which renewals rewrite. An
-- update that changes no key, and that finds its page full, lets go of the page while it looks for
-- another, and PostgreSQL forgets who locks the row FOR KEY SHARE meanwhile.
CREATE TABLE lease_epochs (
    job_name text   PRIMARY KEY,
    epoch    bigint NOT NULL
) WITH (
    autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0,
    vacuum_truncate = false
);

-- It makes a change of epoch a change of key, and must stay plain, as that of leadership.
CREATE UNIQUE INDEX lease_epochs_job_name_epoch ON lease_epochs (job_name, epoch);

COMMENT ON TABLE lease_epochs IS 'what fenced writes lock; written by the triggers of leadership alone';

-- An update that changes nothing would be the one kind that changes no key.
CREATE TRIGGER rota_key_only BEFORE UPDATE ON lease_epochs
    FOR EACH ROW WHEN (NEW.epoch = OLD.epoch) EXECUTE FUNCTION suppress_redundant_updates_trigger();
CREATE TRIGGER rota_key_only BEFORE UPDATE ON fence_watermarks
    FOR EACH ROW WHEN (NEW.epoch = OLD.epoch) EXECUTE FUNCTION suppress_redundant_updates_trigger();

-- A change of epoch waits here for the fenced writes under way, whoever makes it.
-- SECURITY DEFINER, so that whoever may compete for leases need not be able to write this table.
-- +goose StatementBegin
DO $do$
BEGIN
    EXECUTE format($sql$
        CREATE FUNCTION rota_epoch() RETURNS trigger LANGUAGE plpgsql
            SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
        BEGIN
            INSERT INTO %1$I.lease_epochs AS e (job_name, epoch) VALUES (NEW.job_name, NEW.epoch)
            ON CONFLICT (job_name) DO UPDATE SET epoch = EXCLUDED.epoch WHERE e.epoch <> EXCLUDED.epoch;
            RETURN NULL;
        END $$ $sql$, current_schema());
END $do$;
-- +goose StatementEnd

-- From here on nobody changes an epoch until all are copied.
CREATE TRIGGER leadership_first_epoch AFTER INSERT ON leadership
    FOR EACH ROW EXECUTE FUNCTION rota_epoch();
CREATE TRIGGER leadership_epoch AFTER UPDATE ON leadership
    FOR EACH ROW WHEN (NEW.epoch IS DISTINCT FROM OLD.epoch OR NEW.job_name <> OLD.job_name)
    EXECUTE FUNCTION rota_epoch();
INSERT INTO lease_epochs SELECT job_name, epoch FROM leadership;

-- Locks the lease's epoch until the transaction ends, or raises RF001. Owner and expiry are read
-- beside it, without a lock: while the epoch stays, the owner does, and nothing rests on the expiry.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION rota_guard(lease text, holder text, term bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM 1 FROM lease_epochs e
      WHERE e.job_name = lease AND e.epoch = term
        AND EXISTS (SELECT FROM leadership l
                     WHERE l.job_name = lease AND l.owner = holder AND l.epoch = term
                       AND l.expires_at > clock_timestamp())
        FOR KEY SHARE;
    IF NOT FOUND THEN
        PERFORM rota_refuse('its lease has passed on or has expired');
    END IF;
END $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION rota_guard(lease text, holder text, term bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM 1 FROM leadership l
      WHERE l.job_name = lease AND l.owner = holder AND l.epoch = term
        AND l.expires_at > clock_timestamp()
        FOR KEY SHARE;
    IF NOT FOUND THEN
        PERFORM rota_refuse('its lease has passed on or has expired');
    END IF;
END $$;
-- +goose StatementEnd
DROP TRIGGER rota_key_only ON fence_watermarks;
DROP TRIGGER leadership_epoch ON leadership;
DROP TRIGGER leadership_first_epoch ON leadership;
DROP FUNCTION rota_epoch();
DROP TABLE lease_epochs;
