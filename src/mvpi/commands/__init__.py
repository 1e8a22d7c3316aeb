"""The commands of the `mvpi` program, a dataclass each: its fields are the options."""
