"""Requests on their way to the nodes of a cluster, without I/O.

delegate    unsent and in-flight requests: where each goes, its deadline, its answer
pool        the connections by address and purpose
connection  one connection: set-up, requests, answers in order
setup       what a connection says before the first request: ApiVersions, SASL
sasl        the SASL mechanisms
frames      bytes as answers
addresses   the frames      bytes as answers
addresses that may be tried, and how long not after a failure
"""
