"""Answers of NCCL RAS, written as NCCL writes them."""

from kb.parsers.nccl_ras.answers import read_ras

START = 1_793_000_000.0
OPS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")


def rank(number, pid, counts=(0, 0, 0, 0, 9), *, init=0, **flags):
    """One rank as NCCL prints it."""
    status = {"finalize_called": "false", "destroy_flag": "false", "abort_flag": "false"} | flags
    lines = [f'"init_state": {init}', '"async_error": 0', *(f'"{name}": {value}' for name, value in status.items())]
    return (
        f'        {{\n          "rank": {number},\n          "host": "10.7.0.1",\n          "pid": {pid},\n'
        f'          "cuda_dev": {number % 8},\n          "nvml_dev": {number % 8},\n          "status": {{\n'
        + ",\n".join(f"            {line}" for line in lines)
        + '\n          },\n          "collective_counts": {\n'
        + ",\n".join(f'            "{op}": {count}' for op, count in zip(OPS, counts, strict=True))
        + "\n          }\n        }"
    )


def gone(number, pid, *, dead=False, unresponsive=True, comma=","):
    """One missing rank; 2.28.7 to 2.28.9 leave the comma before the status out."""
    return (
        f'        {{\n          "rank": {number},\n          "host": "10.7.0.1",\n          "pid": {pid},\n'
        f'          "cuda_dev": {number % 8},\n          "nvml_dev": {number % 8}{comma}\n          "status": {{\n'
        f'            "unresponsive": {str(unresponsive).lower()},\n'
        f'            "considered_dead": {str(dead).lower()}\n          }}\n        }}'
    )


def communicator(key, size, ranks, missing=()):
    """One communicator as NCCL prints it."""
    return (
        f'    {{\n      "hash": "{key}",\n      "secondary_hash": "0x91:0x92",\n      "size": {size},\n'
        f'      "ranks_count": {len(ranks)},\n      "missing_ranks_count": {len(missing)},\n      "ranks": [\n'
        + ",\n".join(ranks)
        + '\n      ],\n      "missing_ranks": [\n'
        + ",\n".join(missing)
        + "\n      ]\n    }"
    )


def document(*communicators, stamp="2026-10-03 04:05:06", timeouts=0):
    """A whole answer."""
    return (
        '{\n  "nccl_version": "2.29.3",\n  "cuda_runtime_version": 12090,\n  "cuda_driver_version": 13000,\n'
        f'  "timestamp": "{stamp}",\n  "communicators_count": {len(communicators)},\n  "communicators": [\n'
        + ",\n".join(communicators)
        + f'\n  ],\n  "ras": {{\n    "collection_time_sec": 0.125,\n    "timeouts_count": {timeouts}\n  }}\n}}\n'
    ).encode()


def report(*communicators, at=0.0):
    """An answer read at a time."""
    read, _ = read_ras(document(*communicators), "ras/x.json", START + at)
    assert read is not None
    return read


def four(counts, key="0xa1", first=500, **more):
    """A communicator of four whose ranks have launched this many all-reduces."""
    return communicator(
        key, len(counts), [rank(at, first + at, (0, 0, 0, 0, count), **more) for at, count in enumerate(counts)]
    )


TABLE = """NCCL version 2.27.5 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          8            1         16       16

Communicators... (1.25s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2       7-8        16        16   RUNNING  {errors}
    1         8         2         1         2        16   RUNNING      OK

"""
MISMATCH = (
    TABLE.format(errors="MISMATCH")
    + """Errors
======

Warnings
========

#0-0 (00d4c1b2a3948576) MISMATCH
  Communicator ranks have different AllReduce operation counts
  14 ranks have launched up to operation 812
  Rank 3 has launched up to operation 811 -- GPU 3 managed by process 7103 on node 10.7.0.1
  Rank 9 has not launched any operations -- GPU 1 (NVML 5) managed by process 7209 on node 10.7.0.2

"""
)
INCOMPLETE = (
    TABLE.format(errors="INCOMPLETE")
    + """Errors
======

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 7212 on node 10.7.0.2 managing GPU 4

#0-0 (d4c1b2a3948576) INCOMPLETE
  Missing communicator data from 2 ranks
  Rank 12 -- GPU 4 managed by process 7212 on node 10.7.0.2
  Rank 13 -- [process information not found]

Warnings
========

TIMEOUT
  Encountered 2 communication timeouts while gathering communicator data

"""
)
