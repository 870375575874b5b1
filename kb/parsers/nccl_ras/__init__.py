"""NCCL RAS: reads the answers of `ncclras` about every communicator, JSON or text.

RAS counts the collectives that each rank has launched in each communicator; it knows no durations, no point-to-point
operations, and its rank numbers count within the communicator. One answer proves nothing (ranks of a running job always
differ slightly); two without change do. Its timestamps are local time without a zone: the caller's time is better.
Releases 2.28.7 to 2.28.9 write broken JSON as soon as a rank is missing; it is repaired and reported here.
"""
