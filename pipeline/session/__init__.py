"""A SparkSession as users expect one, and what it takes: Java, this Python, quiet logs."""
