"""Where environments come from, their spaces, the guarded step, and episodes of a policy."""
