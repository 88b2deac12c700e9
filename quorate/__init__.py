"""The user-facing package: the command line, a small Kafka client for it, and the demo.

This is the top floor of the house. It joins `cluster` (how a node runs) and `history` (what happened), which
do not know each other; no other package imports it.

entry            makes sure that the imported modules are ours
app              the command line; failures become one line and an exit code
commands/        one module per command
demo/            `quorate demo`
errors           anticipated failures and exit codes
output           text for people, JSON for programs
client           a small Kafka client
retrying_client  routing to the right node, retries, time limits
connection       one connection of it
groupclient      lists and descriptions of groups, and changes to them
faultclient      faults on demand, on every node
groupview        the text of `groups describe`
http_client      HTTP to one node
nodes            HTTP to the nodes of a cluster
live             the live state of a group, from its leader
livelog          the log of a running cluster, for `history`
following        `--follow`
offsetplan       the plan of an offset reset
resetting        that plan, from an operator's options
endoffsets       begin and end offsets in a Kafka cluster
testing          a cluster for tests of Kafka applications
pytest_plugin    the fixture `quorate`
mirror           mirrors the topics of a Kafka cluster
"""
