-- +goose Up

-- Which of so many shards a key's work is, from 1; fence.ShardOf says the same in Go. Another answer
-- for one key would give its rows to two shards, so it must never change.
-- +goose StatementBegin
CREATE FUNCTION rota_shard(key text, shards integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    sum bytea := sha256(convert_to(key, 'UTF8'));
BEGIN
    RETURN ((get_byte(sum, 0)::bigint << 24) + (get_byte(sum, 1) << 16) + (get_byte(sum, 2) << 8) + get_byte(sum, 3)) % shards + 1;
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION rota_shard(text, integer);
