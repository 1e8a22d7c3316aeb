"""The HTML page about trained runs: reads their rows, neither trains nor simulates."""
