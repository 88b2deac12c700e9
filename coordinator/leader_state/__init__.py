"""State that only a leader keeps, outside the log: deadlines, pacing, rounds and work in progress.

It is lost with the leadership and rebuilt by the next leader, so the correctness of a decision must not
depend on it.
"""
