"""The SparkSession: the caller's if there is one, else a new one, and everything needed to start it.

    sessions  the existing session, or a new one: local, on a cluster, through Connect
    settings  configuration of a new session: defaults that yield to the user's, options of the commands
    java      the Java that Spark runs on: found and checked, or an error that explains
    jvm       the driver's JVM, started with its output in a file rather than on the terminal
    shipping  our code as one zip, for executors that only have its dependencies
    failures  Spark's exceptions as one-line errors of ours

Invariants: an existing session is used unchanged and never stopped; whatever Spark Connect lacks
(contexts, gateways, artifacts) is only used in this package.
"""
