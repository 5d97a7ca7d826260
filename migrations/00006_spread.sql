-- +goose Up

-- What members can lead. Replicas of one build and one configuration share a row.
CREATE TABLE abilities (
    id   text   PRIMARY KEY,
    jobs text[] NOT NULL
);

COMMENT ON COLUMN abilities.id IS 'a hash of the jobs';

ALTER TABLE replicas ADD COLUMN ability text NOT NULL DEFAULT '';

COMMENT ON COLUMN replicas.ability IS 'the row of abilities that says which jobs it can lead';

-- +goose Down
ALTER TABLE replicas DROP COLUMN ability;
DROP TABLE abilities;
