"""The consumer rewrite design of 2013 (seed 000), and the variant that a comment under it describes.

messages     requests and responses as bytes
errors       error numbers, and what a consumer makes of each
machines     the states of both coordinators and both consumers, as tables
strategies   which consumer gets which partition: range, round robin
groups       what a coordinator keeps of a group in memory only
deadlines    when sessions end
bounds       settings, and how large a group may get
commits      the offsets of an OffsetCommit
coordinator  decisions that both variants share
variants     where the two differ
consumer     a consumer of either variant, driven by a table
fetching     what a consumer fetches, by the thread's subroutines 20 to 40
"""
