"""Group epochs and target assignments: what triggers a new one, when it is due, and who computes it.

epochs         the steps that bump a group's epoch and compute its target
targeting      when the next target is computed, and by whom
target         from the group to the assignor's input, and from its answer to records
checks         due work without a request: topic changes, a new term, deferred targets
clientside     client-side assignors: which assignor, which member
clienttargets  validation of targets that members install
"""
