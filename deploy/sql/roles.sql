-- The roles of Rota, each with no more rights than it needs. Run it as a superuser in Rota's database
-- before the first `scheduler migrate up`, and again after each one, for the tables that it made:
--
--   rota_owner   owns the schema and migrates it: scheduler migrate up
--   rota         runs replicas and commands: scheduler serve --migrate=check
--   rota_reader  looks: scheduler leases list, runs list, audit list, and dashboards
--
-- They have no passwords yet: \password rota_owner, and so on, or what pg_hba.conf says.
BEGIN;

DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['rota_owner', 'rota', 'rota_reader'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
            EXECUTE format('CREATE ROLE %I LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE', name);
        END IF;
        EXECUTE format('ALTER ROLE %I IN DATABASE %I SET search_path = rota', name, current_database());
    END LOOP;
    EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database());
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO rota_owner, rota, rota_reader', current_database());
END $$;

CREATE SCHEMA IF NOT EXISTS rota AUTHORIZATION rota_owner;
GRANT USAGE ON SCHEMA rota TO rota, rota_reader;
ALTER DEFAULT PRIVILEGES FOR ROLE rota_owner IN SCHEMA rota GRANT SELECT ON TABLES TO rota, rota_reader;

-- What the runtime role may do with each table of ours, besides reading it. Nobody but the owner may
-- delete a lease, whose epoch would begin again, or change a line of the audit.
DO $$
DECLARE
    own  text[][] := ARRAY[
        ['leadership',       'INSERT, UPDATE'],
        ['terms',            'DELETE'],
        ['replicas',         'INSERT, UPDATE, DELETE'],
        ['abilities',        'INSERT'],
        ['progress',         'INSERT, UPDATE'],
        ['runs',             'INSERT, UPDATE, DELETE'],
        ['requests',         'INSERT, UPDATE, DELETE'],
        ['pauses',           'INSERT, UPDATE, DELETE'],
        ['audit',            'INSERT'],
        ['fence_watermarks', 'UPDATE'],
        ['lease_epochs',     'UPDATE'],
        ['job_shards',       'INSERT, UPDATE'],
        ['rota_schema',      NULL],
        ['rota_jobs_schema', NULL],
        ['rota_migration_lock', NULL]];
    other text;
BEGIN
    IF to_regclass('rota.leadership') IS NULL THEN
        RETURN; -- not migrated yet
    END IF;
    FOR i IN 1 .. array_length(own, 1) LOOP
        IF to_regclass('rota.' || own[i][1]) IS NOT NULL THEN
            EXECUTE format('REVOKE ALL ON rota.%I FROM rota, rota_reader', own[i][1]);
            EXECUTE format('GRANT SELECT ON rota.%I TO rota, rota_reader', own[i][1]);
            IF own[i][2] IS NOT NULL THEN
                EXECUTE format('GRANT %s ON rota.%I TO rota', own[i][2], own[i][1]);
            END IF;
        END IF;
    END LOOP;
    -- The tables of the jobs: their runs read and write them.
    FOR other IN
        SELECT c.relname FROM pg_class c
         WHERE c.relnamespace = 'rota'::regnamespace AND c.relkind IN ('r', 'p')
           AND NOT c.relname::text = ANY (own[:][1:1])
    LOOP
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON rota.%I TO rota', other);
        EXECUTE format('GRANT SELECT ON rota.%I TO rota_reader', other);
    END LOOP;
END $$;

COMMIT;
