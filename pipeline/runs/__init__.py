"""From an input to fresh tables: once (`run`), or on and on (`stream`)."""
