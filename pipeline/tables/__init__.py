"""Tables on disk: Parquet files by date and shard, and the manifest that says which of them count."""
