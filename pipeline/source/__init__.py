"""``spark.read.format("quorate")``: the files of nodes as rows, one partition a segment."""
