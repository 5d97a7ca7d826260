package main

// The article's statement, which its loop runs for each job.
const articleUpsert = `INSERT INTO leadership (job_name, owner, expires_at, epoch)
VALUES ($1, $2, now() + interval '15 seconds', 1)
ON CONFLICT (job_name) DO UPDATE
   SET owner      = $2,
       expires_at = now() + interval '15 seconds',
       epoch      = leadership.epoch
                  + CASE WHEN leadership.owner = $2
                          AND leadership.expires_at >= now() THEN 0 ELSE 1 END
 WHERE leadership.owner = $2
    OR leadership.expires_at < now()
RETURNING epoch`
