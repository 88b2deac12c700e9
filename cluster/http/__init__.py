"""The HTTP port.

listener       the port
app            the API on aiohttp: `routes` with the answers of `reads`, and the files of the log
routes         the API as a table: paths, parameters, answers; router and `openapi` use it
openapi        the document of the API
schemas        the JSON schemas of its answers
reads          answers from the projections of this node
writes         changes by operators: the format level, faults
leadership     changes by operators: transfers, and drained nodes
launcher       kill and restart, carried out by the `quorate up` that runs the node
leases         members of groups that live as long as a stream of events
page           the page at `/`, and which pages may read the answers
feeds          groups live, as server-sent events
file_server    the committed log, its snapshot, the evidence
metrics        /metrics in Prometheus' format
shard_metrics  the figures of a shard as metrics
kafka_metrics  the metrics of KIP-848, under Kafka's names
recent         the last half minute, second by second
text           JSON in slices
hosts          the host names that are accepted
places         a bounded number of connections, where a new one always gets in
node_view      the interface of a node towards the HTTP listener
"""

from cluster.http.listener import HttpListener

__all__ = ["HttpListener"]
