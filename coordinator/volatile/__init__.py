"""What a leader knows beside the log: deadlines, paces, rounds, and work under way.

Lost with the lead and made anew by the next leader, so no decision may depend on it for its correctness.
"""
