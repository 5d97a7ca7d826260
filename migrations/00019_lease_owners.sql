-- +goose Up

-- Whose term it is, beside its epoch: to see that by the row that they lock saves fenced writes a look at
-- leadership each. While an epoch stays its owner does, unless somebody resets a lease by hand, and a
-- former holder who had the same epoch must be refused then too.

-- Leadership comes first: an acquisition under way has locked it, and is about to lock the epochs. From
-- here on nobody changes an owner until all are copied, nor does a fenced write hold a lock that the copying,
-- an update that changes no key, could lose. Renewals wait meanwhile, so that it must not take long: a dump
-- would have the migration wait for its end, and all leases run out.
-- +goose StatementBegin
DO $$
BEGIN
    PERFORM set_config('lock_timeout', '1s', true);
    LOCK TABLE leadership IN SHARE ROW EXCLUSIVE MODE;
    LOCK TABLE lease_epochs IN ACCESS EXCLUSIVE MODE;
EXCEPTION WHEN lock_not_available THEN
    RAISE EXCEPTION 'leadership or lease_epochs has been in use for a second, by a dump perhaps: migrate again once that is over'
        USING ERRCODE = 'lock_not_available';
END $$;
-- +goose StatementEnd
ALTER TABLE lease_epochs ADD COLUMN owner text NOT NULL DEFAULT '';
ALTER TABLE lease_epochs ALTER COLUMN owner DROP DEFAULT;
UPDATE lease_epochs e SET owner = l.owner FROM leadership l WHERE l.job_name = e.job_name;

-- It makes a change of epoch or of owner a change of key, and must stay plain.
CREATE UNIQUE INDEX lease_epochs_term ON lease_epochs (job_name, epoch, owner);
DROP INDEX lease_epochs_job_name_epoch;

DROP TRIGGER rota_key_only ON lease_epochs;
CREATE TRIGGER rota_key_only BEFORE UPDATE ON lease_epochs
    FOR EACH ROW WHEN (NEW.epoch = OLD.epoch AND NEW.owner = OLD.owner) EXECUTE FUNCTION suppress_redundant_updates_trigger();

-- +goose StatementBegin
DO $do$
BEGIN
    EXECUTE format($sql$
        CREATE OR REPLACE FUNCTION rota_epoch() RETURNS trigger LANGUAGE plpgsql
            SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
        BEGIN
            INSERT INTO %1$I.lease_epochs AS e (job_name, epoch, owner) VALUES (NEW.job_name, NEW.epoch, NEW.owner)
            ON CONFLICT (job_name) DO UPDATE SET epoch = EXCLUDED.epoch, owner = EXCLUDED.owner
              WHERE e.epoch <> EXCLUDED.epoch OR e.owner <> EXCLUDED.owner;
            RETURN NULL;
        END $$ $sql$, current_schema());
END $do$;
-- +goose StatementEnd
DROP TRIGGER leadership_epoch ON leadership;
CREATE TRIGGER leadership_epoch AFTER UPDATE ON leadership
    FOR EACH ROW WHEN (NEW.epoch IS DISTINCT FROM OLD.epoch OR NEW.owner IS DISTINCT FROM OLD.owner OR NEW.job_name <> OLD.job_name)
    EXECUTE FUNCTION rota_epoch();

-- +goose Down
-- +goose StatementBegin
DO $$
BEGIN
    PERFORM set_config('lock_timeout', '1s', true);
    LOCK TABLE leadership IN SHARE ROW EXCLUSIVE MODE;
    LOCK TABLE lease_epochs IN ACCESS EXCLUSIVE MODE;
EXCEPTION WHEN lock_not_available THEN
    RAISE EXCEPTION 'leadership or lease_epochs has been in use for a second, by a dump perhaps: migrate again once that is over'
        USING ERRCODE = 'lock_not_available';
END $$;
-- +goose StatementEnd
DROP TRIGGER leadership_epoch ON leadership;
CREATE TRIGGER leadership_epoch AFTER UPDATE ON leadership
    FOR EACH ROW WHEN (NEW.epoch IS DISTINCT FROM OLD.epoch OR NEW.job_name <> OLD.job_name)
    EXECUTE FUNCTION rota_epoch();
-- +goose StatementBegin
DO $do$
BEGIN
    EXECUTE format($sql$
        CREATE OR REPLACE FUNCTION rota_epoch() RETURNS trigger LANGUAGE plpgsql
            SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
        BEGIN
            INSERT INTO %1$I.lease_epochs AS e (job_name, epoch) VALUES (NEW.job_name, NEW.epoch)
            ON CONFLICT (job_name) DO UPDATE SET epoch = EXCLUDED.epoch WHERE e.epoch <> EXCLUDED.epoch;
            RETURN NULL;
        END $$ $sql$, current_schema());
END $do$;
-- +goose StatementEnd
DROP TRIGGER rota_key_only ON lease_epochs;
CREATE TRIGGER rota_key_only BEFORE UPDATE ON lease_epochs
    FOR EACH ROW WHEN (NEW.epoch = OLD.epoch) EXECUTE FUNCTION suppress_redundant_updates_trigger();
CREATE UNIQUE INDEX lease_epochs_job_name_epoch ON lease_epochs (job_name, epoch);
DROP INDEX lease_epochs_term;
ALTER TABLE lease_epochs DROP COLUMN owner;
