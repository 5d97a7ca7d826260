-- +goose Up

-- As in 00015, but for how long a lease was free: a program may have written an expiry that cannot be
-- reckoned with, minus infinity for one, and nobody could take the lease then.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION rota_acquire(holder text, lease text, seen bigint, lasts interval, absurd bigint)
    RETURNS TABLE (epoch bigint, first boolean, idle interval) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH expired AS MATERIALIZED (
        SELECT l.ctid AS place, l.epoch AS last, greatest(l.expires_at, clock_timestamp() - interval '1 year') AS ended,
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

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION rota_acquire(holder text, lease text, seen bigint, lasts interval, absurd bigint)
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
