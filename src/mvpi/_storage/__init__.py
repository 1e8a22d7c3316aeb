"""Files: safe reading, atomic writing, locks, and the run directory with its checksums."""
