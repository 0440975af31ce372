-- Version 6: recovery, further on.

-- Where the kept end of standard error begins in its file, so that evidence can name its place.
ALTER TABLE attempt ADD COLUMN stderr_tail_start INTEGER;

-- Attempts that turned out not to be their job's fault after a rule had retried them: they do not count as its uses.
CREATE TABLE refunded_attempt (
    attempt_id INTEGER PRIMARY KEY REFERENCES attempt(id) ON DELETE CASCADE
) STRICT;

-- Until when a runner gets no work.
ALTER TABLE compute_node ADD COLUMN quarantine_until_ms INTEGER;

-- What a file that no job writes contained, where the workflow compares contents.
ALTER TABLE file ADD COLUMN hash TEXT;
