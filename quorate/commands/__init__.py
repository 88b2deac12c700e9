"""The commands, one module per word of the command line; each imports what is heavy only when it runs."""
