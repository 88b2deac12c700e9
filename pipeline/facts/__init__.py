"""The facts of `history`, group by group inside Spark, and the states that wait for the next run."""
