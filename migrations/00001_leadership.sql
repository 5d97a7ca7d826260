-- +goose Up

-- One row per lease, kept for ever: deleting one would restart its epochs.
-- The first four columns are the public contract; any program may compete for
-- a row with plain SQL on them, so every further column has a default.
CREATE TABLE leadership (
    job_name    text        PRIMARY KEY,
    owner       text        NOT NULL,
    expires_at  timestamptz NOT NULL,
    epoch       bigint      NOT NULL CHECK (epoch >= 0),
    acquired_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (
    -- Renewals rewrite every row every few seconds. Half-empty pages keep those
    -- updates on their page (HOT): 99.8 % of them, against 2 % by default.
    fillfactor = 50,
    autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0,
    -- Truncating takes an ACCESS EXCLUSIVE lock, which a renewal would wait for.
    vacuum_truncate = false
);

-- This index makes a change of epoch a change of key, so that it waits for the
-- FOR KEY SHARE locks of fenced writes in flight while a renewal, which changes
-- no key, does not. It must stay plain: PostgreSQL counts a column as a key only
-- for a unique index that is neither partial, nor on an expression, nor deferrable.
CREATE UNIQUE INDEX leadership_job_name_epoch ON leadership (job_name, epoch);

COMMENT ON TABLE leadership IS 'who leads each lease until when, and under which epoch';

-- Every term there has been, whoever began or ended it.
CREATE TABLE terms (
    job_name    text        NOT NULL,
    epoch       bigint      NOT NULL,
    owner       text        NOT NULL,
    acquired_at timestamptz NOT NULL,
    ended_at    timestamptz,
    end_reason  text,
    PRIMARY KEY (job_name, epoch)
);

COMMENT ON TABLE terms IS 'each term of each lease; written by the triggers of leadership alone';

-- +goose StatementBegin
CREATE FUNCTION rota_acquired() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.acquired_at := clock_timestamp();
    RETURN NEW;
END $$;
-- +goose StatementEnd

CREATE TRIGGER leadership_acquired BEFORE UPDATE ON leadership
    FOR EACH ROW WHEN (NEW.epoch IS DISTINCT FROM OLD.epoch)
    EXECUTE FUNCTION rota_acquired();

-- History is written here and not by the replicas, so that it also tells of
-- terms begun or ended by other programs. It must never stop a takeover:
-- where a key exists already (a lease row was reset), the row is updated.
--
-- SECURITY DEFINER, so that a role that may compete for leases need not be able
-- to rewrite their history; the search path is fixed to this installation's
-- schema, so that nobody can put another "terms" in front of it.
-- +goose StatementBegin
DO $do$
BEGIN
    EXECUTE format($sql$
        CREATE FUNCTION rota_term() RETURNS trigger LANGUAGE plpgsql
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
            IF NEW.epoch > 0 AND (TG_OP = 'INSERT' OR NEW.epoch <> OLD.epoch) THEN
                INSERT INTO %1$I.terms AS t (job_name, epoch, owner, acquired_at)
                VALUES (NEW.job_name, NEW.epoch, NEW.owner, NEW.acquired_at)
                ON CONFLICT (job_name, epoch) DO UPDATE
                   SET owner = EXCLUDED.owner, acquired_at = EXCLUDED.acquired_at,
                       ended_at = NULL, end_reason = NULL;
            END IF;
            RETURN NULL;
        END $$ $sql$, current_schema());
END $do$;
-- +goose StatementEnd

-- AFTER INSERT, not BEFORE: a BEFORE INSERT trigger also fires for every upsert
-- that turns out to be a renewal.
CREATE TRIGGER leadership_first_term AFTER INSERT ON leadership
    FOR EACH ROW WHEN (NEW.epoch > 0)
    EXECUTE FUNCTION rota_term();

-- The WHEN clause keeps renewals, which move expires_at forward, free of charge.
CREATE TRIGGER leadership_term AFTER UPDATE ON leadership
    FOR EACH ROW WHEN (NEW.epoch IS DISTINCT FROM OLD.epoch OR NEW.expires_at < OLD.expires_at)
    EXECUTE FUNCTION rota_term();

-- The members: one row per process start, renewed with its leases.
CREATE TABLE replicas (
    id           text        PRIMARY KEY,
    host         text        NOT NULL,
    pid          integer     NOT NULL,
    version      text        NOT NULL,
    started_at   timestamptz NOT NULL,
    seen_at      timestamptz NOT NULL,
    expires_at   timestamptz NOT NULL,
    clock_offset interval    NOT NULL DEFAULT '0',
    hints        boolean     NOT NULL DEFAULT false,
    draining     boolean     NOT NULL DEFAULT false
) WITH (fillfactor = 50);

COMMENT ON COLUMN replicas.clock_offset IS 'the database''s clock less the replica''s, by the replica''s estimate';
COMMENT ON COLUMN replicas.hints IS 'whether notifications reach it; without them it works by polling';

-- The channel on which a release wakes the standbys. It carries the schema, so
-- that two installations in one database do not wake each other; a schema name
-- too long for a channel is replaced by its hash.
CREATE FUNCTION rota_channel() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN octet_length(current_schema()) <= 58
                THEN 'rota:' || current_schema()
                ELSE 'rota:' || md5(current_schema()) END
$$;

-- +goose Down
DROP FUNCTION rota_channel();
DROP TABLE replicas;
DROP TABLE leadership;
DROP FUNCTION rota_term();
DROP FUNCTION rota_acquired();
DROP TABLE terms;
