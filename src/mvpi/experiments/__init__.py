"""The paper's experiments: what is run, and the rows that come out."""
