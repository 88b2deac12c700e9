"""`quorate generations`: one seeded schedule, played in virtual time to each generation of the protocol.

schedule  what happens to a group, and when, drawn from a seed
ledger    who worked on which partition when, and the messages: from these, the figures
contest   the players on the schedule
page      the results as one HTML page
players/  the protocols, each behind the interface of `contest.Player`

docs/generations.md says what is played and how it is counted.
"""
