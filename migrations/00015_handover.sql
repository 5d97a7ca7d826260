-- +goose Up

-- A handover waits for one acquisition and one release, each of a single lease in most cases. As
-- functions they keep the plans of their statements from one transaction to the next, through a
-- pooler too, and whatever client calls them. Where they come to nothing they say nothing, and the
-- statements for many find out why.

-- It takes a lease that has expired and that nobody holds, under an epoch above every known one.
-- +goose StatementBegin
CREATE FUNCTION rota_acquire(holder text, lease text, seen bigint, lasts interval, absurd bigint)
    RETURNS TABLE (epoch bigint, first boolean, idle interval) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH expired AS MATERIALIZED (
        SELECT l.ctid AS place, l.epoch AS last, l.expires_at AS ended,
               greatest(l.epoch, seen, (SELECT t.epoch FROM terms t WHERE t.job_name = lease ORDER BY t.epoch DESC LIMIT 1)) AS known
          FROM leadership l
         WHERE l.job_name = lease AND l.expires_at <= clock_timestamp()
           FOR UPDATE SKIP LOCKED
    )
    UPDATE leadership l SET owner = holder, epoch = e.known + 1, expires_at = clock_timestamp() + lasts
      FROM expired e
     WHERE l.ctid = e.place AND e.known < absurd
    RETURNING l.epoch, e.last = 0, clock_timestamp() - e.ended;
END $$;
-- +goose StatementEnd

-- It ends a term that lasts and whose row nobody holds, and announces it.
-- +goose StatementBegin
CREATE FUNCTION rota_release(holder text, lease text, term bigint, said text)
    RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    UPDATE leadership l SET expires_at = clock_timestamp()
     WHERE l.ctid = (SELECT m.ctid FROM leadership m
                      WHERE m.job_name = lease AND m.owner = holder AND m.epoch = term AND m.expires_at > clock_timestamp()
                        FOR NO KEY UPDATE SKIP LOCKED);
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM pg_notify(rota_channel(), said);
    RETURN true;
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION rota_release(text, text, bigint, text);
DROP FUNCTION rota_acquire(text, text, bigint, interval, bigint);
