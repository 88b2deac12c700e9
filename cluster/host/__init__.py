"""The Host of a real process: its loop and clock, child processes, fresh ids."""
