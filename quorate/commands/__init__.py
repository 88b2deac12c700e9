"""The commands, one module per word of the command line; heavy imports happen only when a command runs."""
