"""Helpers that several test folders use.

Harnesses, from one object to whole processes:

    world             a coordinator without a cluster: one group shard, the catalog, a log
    group_client      a consumer of a `World`: the product's own member, one heartbeat at a time
    single_replica    one replica and a state machine that records its calls
    replica_cluster   replicas of one shard in virtual time, with links in memory and faults on request
    transactions      a metadata shard and two group shards, transactional producers, failures between entries
    sim_node          one whole node in virtual time, and a `Consumer` on the wire
    three_nodes       three whole nodes in virtual time
    listener_rig      the Kafka listener in virtual time over a fake node, and clients that send any bytes
    disk_node         real replicas and decisions in a real directory, on a clock that the test moves
    push_world        a push group in virtual time: its coordinator, consumers, brokers, connections
    rewrite_playing   a group of seed 000 in virtual time: its coordinator, consumers, connections
    incidents         a `World` with processes that misbehave on request, and a list of the incidents
    launched          `quorate up` as a process of its own
    real_cluster      real nodes, inspected from outside, and clients that commit meanwhile

Clients and requests:

    requests          requests as clients send them
    record_batches    record batches as producers send them and consumers read them
    log_cases         requests to a log of messages, for Apache Kafka and for Quorate
    log_answers       Apache Kafka's answers to them, and where Quorate answers otherwise
    admin_requests    an operator's requests to a `World`
    classic_member    a client of a `World` that uses the classic protocol
    old_groups        both old protocols over the shard of a `World`, and consumers that answer at once
    embedded_member   the same as a consumer: it subscribes to topics and takes up partitions
    fault_rules       faults as an operator asks for them
    computing_client  a client of a `World` with assignors of its own
    stock_clients     stock clients in other languages: why one cannot run, and its programs
    verifiable        such programs as processes that tell in lines of JSON what happens to them
    round_robin       a client-side assignor that is sometimes late or wrong
    users_assignors   packages with users' assignors, installed for a test
    polled_consumers  confluent-kafka consumers that are polled in the background
    kafka_python      kafka-python without its warnings, and with its sockets closed
    python_clients    Python's stock clients: members that are polled in the background, and producers
    python_groups     groups of them, and what a test waits for them to do
    committers        a process whose groups commit as fast as they are acknowledged

Random schedules of a `World`:

    schedules                   joins, heartbeats, lost replies, expiries, changes of topics, failovers
    schedules_of_every_request  the same with every other request, expressions and client-side assignors
    schedules_in_parts          the same under bounds so low that every decision that can be split is split
    random_worlds               worlds after such a schedule

Logs to read:

    memory_log         a log in memory, and a writer of entries made by hand
    payments_log       the scripted story that the golden texts tell
    classic_log        the scripted story of a classic group
    lineage_logs       groups of the older protocols, played by their own coordinators
    moto_process       an S3 store in a process of its own
    mixed_story        a group that moves to the other protocol and back
    timeline_logs      groups for pages and timelines, small and large
    three_logs         directories of a cluster, written frame by frame
    long_story         a busy group on a real disk: snapshots, archived segments, many commits
    recorded_incident  the recorded cluster in `examples/`
    recorded_transactions  shards with transactions whose logs can be read back
    independent        tables recomputed from `quorate log dump --json` by code of its own
    table_rows         the rows that an export has, and those of an output of the pipeline
    table_sets         EXCEPT ALL of two outputs of the pipeline

Checks and means:

    group_view           a group by its records alone: a second opinion on the coordinator's
    documented           the commands that a document shows, and their output
    golden_texts         texts in files that must not change; REWRITE_GOLDEN=1 records them again
    replaying            logs replayed, and every window of them compacted
    write_order          the order of the records of an entry
    leader_state_checks  no due work of a leader is forgotten, and no state of deleted groups is kept
    reference_cycles     cycles that a piece of work leaves to the collector
    waiting              `wait_for` and `until`: a condition, looked at until a deadline
    object_stores        an S3 store on loopback, and stores that answer badly
    manual_host          a `Host` that runs what is queued when told to
    certificates         authorities and certificates for TLS
    browser              a headless Chromium
"""
