-- +goose Up

-- Refuses the statement that calls it: SQLSTATE RF001 is what the fence's Go
-- side knows a refusal by. VOLATILE, or the planner could call it ahead of time.
-- +goose StatementBegin
CREATE FUNCTION rota_refuse() RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RAISE EXCEPTION 'rota: this term is over, its writes are refused' USING ERRCODE = 'RF001';
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
        PERFORM rota_refuse();
    END IF;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION rota_keep_epoch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.epoch < OLD.epoch THEN
        RAISE EXCEPTION 'rota: epoch % on a row of % that has epoch %', NEW.epoch, TG_TABLE_NAME, OLD.epoch
            USING ERRCODE = 'RF001';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd

-- Makes a table a protected one: adds the epoch column, and a trigger that
-- refuses any update that lowers it, for programs that bypass the fence.
-- +goose StatementBegin
CREATE FUNCTION fence_protect(protected regclass) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('ALTER TABLE %s ADD COLUMN IF NOT EXISTS epoch bigint NOT NULL DEFAULT 0', protected);
    EXECUTE format('CREATE OR REPLACE TRIGGER rota_keep_epoch BEFORE UPDATE ON %s '
                   'FOR EACH ROW WHEN (NEW.epoch < OLD.epoch) EXECUTE FUNCTION rota_keep_epoch()', protected);
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION fence_protect(regclass);
DROP FUNCTION rota_keep_epoch() CASCADE;
DROP FUNCTION rota_guard(text, text, bigint);
DROP FUNCTION rota_refuse();
