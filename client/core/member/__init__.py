"""The member: how a consumer joins its group, takes what it is assigned, gives it up, and leaves.

states      the table of states and transitions, and the errors that end a member
drawings    the states under the names of earlier designs, and their drawings' arrows
wants       what the member needs from the consumer's other parts
membership  the member's id, epoch and partitions, and the one door to its state
steps       what runs on the application side, by its round number
tokens      the fencing tokens of a member that asks for them
assignment  reconciling the partitions that it has with those that it is assigned
heartbeat   when a heartbeat is sent, which fields it has, and what its answer means
fields      the fields of a heartbeat, most of which are sent only when they changed
computing   running a client-side assignor for the whole group
member      all of it put together, and explain()
"""
