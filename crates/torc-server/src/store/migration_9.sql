-- Version 9: outcomes of retries are remembered by the day, so that old ones stop deciding.

CREATE TABLE failure_memory_by_day (
    fingerprint TEXT NOT NULL,
    action TEXT NOT NULL CHECK (action IN ('again', 'more_memory', 'more_time')),
    -- Days since 1970 (UTC).
    day INTEGER NOT NULL,
    family TEXT NOT NULL,
    tries INTEGER NOT NULL,
    succeeded INTEGER NOT NULL,
    failed_same INTEGER NOT NULL,
    failed_other INTEGER NOT NULL,
    PRIMARY KEY (fingerprint, action, day)
) STRICT, WITHOUT ROWID;
INSERT INTO failure_memory_by_day
    SELECT fingerprint, action, updated_ms / 86400000, family, tries, succeeded, failed_same, failed_other FROM failure_memory;
DROP TABLE failure_memory;
ALTER TABLE failure_memory_by_day RENAME TO failure_memory;
CREATE INDEX failure_memory_by_family ON failure_memory (family);
