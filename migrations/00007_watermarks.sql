-- +goose Up

-- The epoch that all rows of a large protected table count as raised to. It is never below the
-- epoch of any of them.
CREATE TABLE fence_watermarks (
    protected regclass PRIMARY KEY,
    epoch     bigint   NOT NULL CHECK (epoch >= 0)
);

-- As on leadership: a change of epoch is a change of key, so that it waits for the FOR KEY SHARE
-- locks of writes in flight, and is seen by those whose snapshot is older.
CREATE UNIQUE INDEX fence_watermarks_protected_epoch ON fence_watermarks (protected, epoch);

CREATE TRIGGER rota_keep_epoch BEFORE UPDATE ON fence_watermarks
    FOR EACH ROW WHEN (NEW.epoch < OLD.epoch) EXECUTE FUNCTION rota_keep_epoch();

COMMENT ON TABLE fence_watermarks IS 'what each large protected table is raised to; written by the fence alone';

-- The guard of a transaction that may have written to large tables.
-- +goose StatementBegin
CREATE FUNCTION rota_guard(lease text, holder text, term bigint, large regclass[]) RETURNS void
    LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    mark fence_watermarks;
BEGIN
    PERFORM rota_guard(lease, holder, term);
    FOR mark IN SELECT w.* FROM fence_watermarks w WHERE w.protected = ANY (large) ORDER BY w.protected FOR KEY SHARE LOOP
        IF mark.epoch > term THEN
            PERFORM rota_refuse(format('%s was raised to a higher epoch', mark.protected));
        END IF;
    END LOOP;
END $$;
-- +goose StatementEnd

-- Holds a write to a large table against its watermark, and the watermark against a raise until the
-- transaction ends. A lower epoch is refused. A higher one, of a program that leads without raising,
-- moves the watermark, so that no row is ever above it. An update that says nothing of the epoch,
-- which is no word of an old term, gets the epoch that a raise would have given the row.
--
-- It knows the table by its own name or, in a partition, by that of an ancestor. SECURITY DEFINER,
-- so that a role that may write to the table needs no right to watermarks; the search path is fixed
-- for that reason, and the names are those of this installation's schema.
-- +goose StatementBegin
DO $do$
BEGIN
    EXECUTE format($sql$
        CREATE FUNCTION rota_watermark() RETURNS trigger LANGUAGE plpgsql
            SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
        DECLARE
            whole regclass := TG_RELID;
            mark  bigint;
        BEGIN
            LOOP
                SELECT epoch INTO mark FROM %1$I.fence_watermarks
                 WHERE protected = whole AND epoch >= NEW.epoch FOR KEY SHARE;
                EXIT WHEN FOUND;
                -- Not locked before, or two that move it would wait for each other.
                UPDATE %1$I.fence_watermarks SET epoch = NEW.epoch
                 WHERE protected = whole AND epoch < NEW.epoch RETURNING epoch INTO mark;
                EXIT WHEN FOUND;
                SELECT protected INTO whole FROM %1$I.fence_watermarks
                 WHERE protected = TG_RELID OR protected IN (SELECT relid FROM pg_partition_ancestors(TG_RELID));
                IF NOT FOUND THEN
                    RAISE EXCEPTION 'rota: fence_watermarks has no row for %%', TG_RELID::regclass USING ERRCODE = '55000',
                        HINT = format('SELECT %%I.fence_protect(%%L, true)', %1$L, TG_RELID::regclass);
                END IF;
            END LOOP;
            IF TG_ARGV[0] = 'silent' THEN
                NEW.epoch := mark;
            ELSIF NEW.epoch < mark THEN
                RAISE EXCEPTION 'rota: epoch %% refused for a row of %%, which is raised to %%', NEW.epoch, whole, mark
                    USING ERRCODE = 'RF001';
            END IF;
            RETURN NEW;
        END $$ $sql$, current_schema());
END $do$;
-- +goose StatementEnd

-- Makes a table a protected one that is large, whose raise moves a watermark instead of rewriting
-- its rows, or makes a large one plain again. Either reads or writes all rows, with writers waiting.
-- +goose StatementBegin
CREATE FUNCTION fence_protect(protected regclass, large boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    top bigint;
    -- A fenced upsert has locked the watermark and compared it with its epoch, which it says in
    -- rota.raised until its transaction ends; its rows are not held against it one by one.
    unheld text := format('current_setting(''rota.raised'', true) IS DISTINCT FROM (NEW.epoch || '' '' || %L::regclass::oid)', protected);
BEGIN
    PERFORM fence_protect(protected);
    -- From here on no row is written, so that none can be above what is found.
    EXECUTE format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', protected);
    IF large THEN
        EXECUTE format('SELECT coalesce(max(epoch), 0) FROM %s', protected) INTO top;
        INSERT INTO fence_watermarks AS w VALUES (protected, top)
            ON CONFLICT ON CONSTRAINT fence_watermarks_pkey DO UPDATE SET epoch = EXCLUDED.epoch WHERE w.epoch < EXCLUDED.epoch;
        -- Triggers fire in the order of their names: a lower epoch is refused before it could be mended.
        EXECUTE format('CREATE OR REPLACE TRIGGER rota_watermark_1 BEFORE INSERT OR UPDATE OF epoch ON %s '
                       'FOR EACH ROW WHEN (%s) EXECUTE FUNCTION rota_watermark(''said'')', protected, unheld);
        EXECUTE format('CREATE OR REPLACE TRIGGER rota_watermark_2 BEFORE UPDATE ON %s '
                       'FOR EACH ROW WHEN (NEW.epoch = OLD.epoch AND %s) EXECUTE FUNCTION rota_watermark(''silent'')', protected, unheld);
        RETURN;
    END IF;
    EXECUTE format('DROP TRIGGER IF EXISTS rota_watermark_1 ON %s', protected);
    EXECUTE format('DROP TRIGGER IF EXISTS rota_watermark_2 ON %s', protected);
    DELETE FROM fence_watermarks w WHERE w.protected = fence_protect.protected RETURNING w.epoch INTO top;
    EXECUTE format('UPDATE %s SET epoch = $1 WHERE epoch < $1', protected) USING top;
END $$;
-- +goose StatementEnd

-- +goose Down

-- What a large table was raised to is written to its rows, which is all that its fence has from now on.
-- +goose StatementBegin
DO $$
DECLARE
    large regclass;
BEGIN
    FOR large IN SELECT protected FROM fence_watermarks w JOIN pg_class c ON c.oid = w.protected LOOP
        PERFORM fence_protect(large, false);
    END LOOP;
END $$;
-- +goose StatementEnd
DROP FUNCTION fence_protect(regclass, boolean);
DROP FUNCTION rota_watermark() CASCADE;
DROP FUNCTION rota_guard(text, text, bigint, regclass[]);
DROP TABLE fence_watermarks;
