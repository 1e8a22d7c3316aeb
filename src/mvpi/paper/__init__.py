"""The paper's experiments: its grid, its published figures, its tables and its figures."""
