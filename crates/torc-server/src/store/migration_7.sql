-- Version 7: allocations that nothing needs any more.

-- Since when; as long as it waits in Slurm, whoever can speak to Slurm takes it back.
ALTER TABLE scheduled_compute_node ADD COLUMN unneeded_since_ms INTEGER;
