"""A SparkSession as users expect one, and what it takes.

    sessions   the session that there is, or one of ours: local, on a cluster, through Connect
    settings   what a session of ours is told: defaults that yield to the user's, the options of the commands
    java       the Java that Spark runs on: found, checked, or explained
    jvm        the driver's JVM: started with its output in a file, not on the terminal
    shipping   our code as one zip, for executors that have only its dependencies
    failures   what Spark raises as one line of ours

What must stay true: a session that was there before us is used as it is and never stopped; what we need of
Spark beyond DataFrames (contexts, gateways, artifacts) is asked for here and nowhere else, since Spark
Connect has none of it.
"""
