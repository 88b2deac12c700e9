"""Nodes started from outside, for `quorate up` and for tests: their processes, and control over them.

launcher           starts one node, or a cluster of them on this machine
node_process       one node process: started, killed, paused, stopped
cluster_directory  the directory of such a cluster
supervisor         the launcher's loop over a running cluster
"""
