-- +goose Up

-- A run may be for a request of an operator, and keeps the last of what it logged. A row for
-- missed ticks may stand for several of them: those of first_tick to tick.
ALTER TABLE runs
    ADD COLUMN request_id bigint,
    ADD COLUMN first_tick timestamptz,
    ADD COLUMN ticks      bigint NOT NULL DEFAULT 1 CHECK (ticks >= 1),
    ADD COLUMN log        text,
    ADD COLUMN again      boolean NOT NULL DEFAULT false;

COMMENT ON COLUMN runs.error IS 'what a run that did not succeed said; why a tick was skipped or missed';
COMMENT ON COLUMN runs.request_id IS 'the request that it was made for; NULL for a scheduled tick';
COMMENT ON COLUMN runs.first_tick IS 'the first of several missed ticks that share this row, of which tick is the last';
COMMENT ON COLUMN runs.ticks IS 'how many ticks the row is for';
COMMENT ON COLUMN runs.log IS 'the last of the lines that it logged';

COMMENT ON COLUMN runs.again IS 'it was cut short, and the next term runs its tick again';

-- What the next term of a lease runs again.
CREATE INDEX runs_again ON runs (lease, id) WHERE again;
-- A request is run once, however often it is claimed.
CREATE UNIQUE INDEX runs_request ON runs (request_id, attempt) WHERE request_id IS NOT NULL;
-- The last success of each lease, which is never pruned.
CREATE INDEX runs_success ON runs (lease, id DESC) WHERE outcome = 'success';

-- Which jobs take no ticks for now; the job '*' stands for all of them. A pause whose time is over
-- is none, whether its row is still there or not.
CREATE TABLE pauses (
    job       text        PRIMARY KEY,
    reason    text        NOT NULL CHECK (reason <> ''),
    paused_by text        NOT NULL CHECK (paused_by <> ''),
    paused_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    until     timestamptz CHECK (until > paused_at)
);

-- What operators asked for and a replica has to carry out.
CREATE TABLE requests (
    id       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind     text        NOT NULL CHECK (kind IN ('run', 'cancel', 'step_down', 'drain')),
    job      text,
    lease    text,
    epoch    bigint,
    run_id   bigint,
    replica  text,
    args     jsonb       CHECK (jsonb_typeof(args) = 'object'),
    key      text,
    reason   text        NOT NULL DEFAULT '',
    asked_by text        NOT NULL CHECK (asked_by <> ''),
    made_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    done_at  timestamptz,
    result   text,
    CHECK ((done_at IS NULL) = (result IS NULL)),
    CHECK (CASE kind WHEN 'run'       THEN job IS NOT NULL AND lease IS NOT NULL
                     WHEN 'cancel'    THEN job IS NOT NULL AND lease IS NOT NULL AND run_id IS NOT NULL
                     WHEN 'step_down' THEN job IS NOT NULL AND lease IS NOT NULL AND epoch IS NOT NULL
                     ELSE replica IS NOT NULL END)
);

COMMENT ON COLUMN requests.key IS 'a request to run a job that is made again with the same key is the same request';
COMMENT ON COLUMN requests.epoch IS 'the term that should end';
COMMENT ON COLUMN requests.result IS 'what became of it; NULL until a replica has said so';

CREATE UNIQUE INDEX requests_key ON requests (job, key) WHERE key IS NOT NULL;
CREATE INDEX requests_open ON requests (id) WHERE done_at IS NULL;
CREATE INDEX requests_cancel ON requests (run_id) WHERE kind = 'cancel';

-- Who did what, and why. A line is written in the transaction of what it tells of.
CREATE TABLE audit (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor      text        NOT NULL CHECK (actor <> ''),
    via        text        NOT NULL CHECK (via IN ('cli', 'page', 'api', 'replica')),
    action     text        NOT NULL,
    job        text,
    lease      text,
    replica    text,
    run_id     bigint,
    request_id bigint,
    reason     text        NOT NULL DEFAULT '',
    detail     jsonb
);

CREATE INDEX audit_of_job ON audit (job, id DESC);

-- +goose StatementBegin
CREATE FUNCTION rota_audit_is_kept() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit is append-only: % is refused', lower(TG_OP);
END $$;
-- +goose StatementEnd

CREATE TRIGGER audit_is_kept BEFORE UPDATE OR DELETE ON audit
    FOR EACH ROW EXECUTE FUNCTION rota_audit_is_kept();
CREATE TRIGGER audit_is_kept_whole BEFORE TRUNCATE ON audit
    FOR EACH STATEMENT EXECUTE FUNCTION rota_audit_is_kept();

-- A revoke moves the epoch of a row that has run out: such a term begins and ends at once.
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
            IF NEW.epoch > 0 AND (TG_OP = 'INSERT' OR NEW.epoch <> OLD.epoch) THEN
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
DROP TABLE audit;
DROP FUNCTION rota_audit_is_kept();
DROP TABLE requests;
DROP TABLE pauses;
DROP INDEX runs_success;
DROP INDEX runs_request;
DROP INDEX runs_again;
ALTER TABLE runs DROP COLUMN again, DROP COLUMN log, DROP COLUMN ticks, DROP COLUMN first_tick, DROP COLUMN request_id;
