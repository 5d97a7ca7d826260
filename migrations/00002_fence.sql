-- +goose Up

-- Refuses the statement that calls it: SQLSTATE RF001 is what the fence's Go
-- side knows a refusal by. VOLATILE, or the planner could call it ahead of time.
-- +goose StatementBegin
CREATE FUNCTION rota_refuse(why text) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RAISE EXCEPTION 'rota: this term is over, its writes are refused: %', why USING ERRCODE = 'RF001';
END $$;
-- +goose StatementEnd

-- Locks the lease row against a change of epoch until the transaction ends, or
-- raises RF001. A SELECT that merely found no row would let a COMMIT through.
-- +goose StatementBegin
CREATE FUNCTION rota_guard(lease text, holder text, term bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
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

-- +goose StatementBegin
CREATE FUNCTION rota_keep_epoch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rota: epoch % refused for a row of % that has epoch %', NEW.epoch, TG_TABLE_NAME, OLD.epoch
        USING ERRCODE = 'RF001';
END $$;
-- +goose StatementEnd

-- Makes a table, plain or partitioned, a protected one: adds the epoch column,
-- and a trigger that refuses any update that lowers it, for programs that bypass
-- the fence. It may be called again. An epoch column that is there already must
-- be a bigint, and becomes NOT NULL: no epoch compares with a missing one.
-- +goose StatementBegin
CREATE FUNCTION fence_protect(protected regclass) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    found_type regtype;
BEGIN
    EXECUTE format('ALTER TABLE %s ADD COLUMN IF NOT EXISTS epoch bigint NOT NULL DEFAULT 0', protected);
    SELECT atttypid INTO found_type FROM pg_attribute WHERE attrelid = protected AND attname = 'epoch';
    IF found_type <> 'bigint'::regtype THEN
        RAISE EXCEPTION 'rota: column epoch of % is of type %, and must be bigint', protected, found_type
            USING HINT = format('ALTER TABLE %s ALTER COLUMN epoch TYPE bigint', protected);
    END IF;
    EXECUTE format('ALTER TABLE %s ALTER COLUMN epoch SET NOT NULL', protected);
    -- The condition keeps every other update from calling a function at all.
    EXECUTE format('CREATE OR REPLACE TRIGGER rota_keep_epoch BEFORE UPDATE ON %s '
                   'FOR EACH ROW WHEN (NEW.epoch < OLD.epoch) EXECUTE FUNCTION rota_keep_epoch()', protected);
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION fence_protect(regclass);
DROP FUNCTION rota_keep_epoch() CASCADE;
DROP FUNCTION rota_guard(text, text, bigint);
DROP FUNCTION rota_refuse(text);
