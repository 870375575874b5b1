"""NCCL RAS: what `ncclras` says of every communicator, as JSON or as text, and what several such answers tell together.

RAS counts the collectives that each rank has launched in each communicator; it knows no durations, no point-to-point
operations, and its rank numbers count within the communicator. One answer proves nothing (a running job is always a
little uneven), two that stand still do. Its time stamps are local time without a zone: the caller's time is better.
The releases 2.28.7 to 2.28.9 write broken JSON as soon as a rank is missing; it is repaired here, and told.
"""
