"""From an input to up-to-date tables: once (`run`) or continuously (`stream`)."""
