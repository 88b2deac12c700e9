"""A follower that lacks entries gets them: from the live log, from the archive, or by snapshot.

follower_catch_up  the leader's side: entries of the archive, or a snapshot
snapshot_receiver  the follower's side of a snapshot
archive_backfill   a node that began with a snapshot fetches the history before it, in the background
archive_sender     the other side of that
archive_pieces     the pieces in which history travels, checked and put in place
"""
