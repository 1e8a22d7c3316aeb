"""Tables and figures from rows of results; nothing here trains."""
