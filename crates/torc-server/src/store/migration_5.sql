-- Version 5: steps: what they do while they do it, and how much they mended.

-- Attempts with steps that were recovered or ignored; the others, by far the most, are not in it.
CREATE INDEX attempt_mended ON attempt (workflow_id, run_id)
WHERE steps ->> 'recovered' > 0 OR steps ->> 'ignored' > 0;

-- How many events of its steps an attempt's runner has told while it ran; the report at the end has them all again.
ALTER TABLE attempt ADD COLUMN step_events INTEGER NOT NULL DEFAULT 0;
