# %% [markdown]
# # Which deployments cause our rebalances?
#
# A cluster's log knows when each group rebalanced, which member caused it, and how long it took until the
# group was stable again. A deployment tool knows what was rolled out when. Combined, they show which rollouts
# cost the most, and which version crash-loops.
#
# Run it as a script or cell by cell:
#
#     python examples/spark/deployments.py                           # a generated cluster of three days
#     python examples/spark/deployments.py TABLES deployments.csv    # yours
#
# `TABLES` is what `quorate pipeline run` wrote; the CSV has the columns from_ms, until_ms, service, version.
# Client ids are assumed to be `SERVICE-INSTANCE`.

# %%
from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from matplotlib.figure import Figure
from pyspark.sql import functions as f

from quorate.spark import read_table, run, spark_session
from quorate.spark.analyses.storms import rebalance_storms

RECORDS, DAYS, SEED = 60_000, 3, 11
SHOWN = 10
"""Deployments in the table and in the chart."""

spark = spark_session(name="deployments")

# %% [markdown]
# ## The tables, and what was deployed
#
# Without arguments a cluster is generated from a seed: a dozen groups of four services, over three days in
# which instances were rolled, paused and scaled, and nodes failed. One of the versions is bad.

# %%
if len(sys.argv) == 3:
    tables, deployed = Path(sys.argv[1]), Path(sys.argv[2])
elif len(sys.argv) != 1:
    sys.exit("usage: deployments.py [TABLES DEPLOYMENTS.csv]")
else:
    sys.path.append(str(Path(__file__).resolve().parents[2]))  # benchmarks/ is not installed
    from benchmarks.mixedlog import write_life

    home = Path(tempfile.mkdtemp(prefix="quorate-deployments-"))
    log, tables, deployed = home / "node", home / "tables", home / "deployments.csv"
    life = write_life(str(log), RECORDS, days=DAYS, seed=SEED)
    life.plan.write_deployments(deployed)
    run(spark, str(log), str(tables))

deployments = spark.read.csv(
    str(deployed), header=True, schema="from_ms long, until_ms long, service string, version string"
)
print(f"{read_table(spark, tables, 'records').count():,} records, {deployments.count():,} deployments")

# %% [markdown]
# ## Every rebalance, and the process that caused it
#
# Table `group_epochs` has a row for each rebalance, with the member that caused it, how long it took and how
# many partitions it moved. That member's client id is in `member_sessions`; the service is the part before
# the last dash.

# %%
epochs = read_table(spark, tables, "group_epochs").where("num_members > 0")
clients = (
    read_table(spark, tables, "member_sessions")
    .groupBy("cluster_id", "group_id", "member_id")
    .agg(f.max("client_id").alias("client_id"))
    .withColumn("service", f.regexp_extract("client_id", "^(.*)-[^-]*$", 1))
    .withColumnRenamed("member_id", "cause_member_id")
)
rebalances = (
    epochs.join(clients, ["cluster_id", "group_id", "cause_member_id"], "left")
    .withColumn("unstable_ms", f.coalesce("time_to_stable_ms", "duration_ms", f.lit(0)))
    .cache()
)

# %% [markdown]
# ## The answer
#
# A rebalance is attributed to a deployment if its process belongs to the deployed service, at that time.

# %%
of_deployments = rebalances.join(f.broadcast(deployments), "service").where(
    "unix_millis(timestamp) >= from_ms AND unix_millis(timestamp) < until_ms"
)
caused = of_deployments.groupBy("service", "version", "from_ms", "until_ms").agg(
    f.count(f.lit(1)).alias("rebalances"),
    f.count_distinct("group_id").alias("groups"),
    f.sum("num_moves").alias("partitions_moved"),
    f.round(f.sum("unstable_ms") / 1000, 1).alias("not_stable_s"),
)
answer = caused.orderBy(f.desc("rebalances"), "service", "version").limit(SHOWN).collect()

print(f"{'deployment':<28}{'rebalances':>11}{'groups':>8}{'moved':>8}{'not stable':>13}{'took':>9}")
for row in answer:
    took_s = (row.until_ms - row.from_ms) / 1000
    print(
        f"{row.service + ' ' + row.version:<28}{row.rebalances:>11,}{row.groups:>8,}"
        f"{row.partitions_moved:>8,}{row.not_stable_s:>11,.1f} s{took_s:>7,.0f} s"
    )

# %% [markdown]
# A healthy rollout costs two rebalances for each instance and group: the member leaves, and joins. A version
# far above that did not stay up.

# %%
figure = Figure(figsize=(9, 0.45 * len(answer) + 1.2))
axes = figure.subplots()
names = [f"{row.service} {row.version}" for row in reversed(answer)]
axes.barh(names, [row.rebalances for row in reversed(answer)], color="#4c78a8")
axes.set_xlabel("rebalances caused")
axes.set_title("Which deployments cause our rebalances")
axes.spines[["top", "right"]].set_visible(False)
figure.tight_layout()
chart = deployed.with_name("deployments.svg")
figure.savefig(chart)
print(f"chart: {chart}")

# %% [markdown]
# ## What is left
#
# Not every rebalance comes from a deployment. One within two minutes after a failover (a new term of the
# shard) is probably due to that: members that did not find the new leader in time. The rest joined, left or
# stalled.

# %%
takeovers = (
    read_table(spark, tables, "failovers")
    .where("raft_index > 1")
    .select("cluster_id", "shard", f.unix_millis("timestamp").alias("fell_ms"))
)
# Joined by entry, as a group that is created again has its first epochs twice.
place = ["cluster_id", "shard", "group_id", "raft_index"]
others = rebalances.join(of_deployments.select(*place), place, "left_anti")
soon = others.join(f.broadcast(takeovers), ["cluster_id", "shard"], "left").withColumn(
    "after_failover",
    f.coalesce((f.unix_millis("timestamp") - f.col("fell_ms")).between(0, 120_000), f.lit(False)),
)
left = (
    soon.groupBy(*place)
    .agg(f.any_value("trigger").alias("trigger"), f.max("after_failover").alias("after_failover"))
    .groupBy("trigger", "after_failover")
    .count()
    .orderBy(f.desc("count"))
    .collect()
)
print("\nrebalances that no deployment explains:")
for row in left:
    print(f"{row['count']:>8,}  {row.trigger}{' after a failover' if row.after_failover else ''}")

# %% [markdown]
# Finally, the times at which many groups rebalanced at once, the largest first.

# %%
storms = (
    rebalance_storms(rebalances)
    .where("group_id IS NULL")
    .orderBy(f.desc("groups"), "from_time")
    .limit(5)
    .collect()
)
print("\nstorms across groups:")
for row in storms:
    seconds = (row.to_time - row.from_time).total_seconds()
    print(
        f"{row.groups:>8,} groups, {row.rebalances:,} rebalances in {seconds:,.0f} s:"
        f" {', '.join(row.triggers)}"
    )
