"""Xid, SXid, OOM kills and blocked tasks."""

import pytest

from kb.parsers.logs.kernel import READERS
from tests.support.parsing import one, structures


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        (
            "[81345.220417] NVRM: Xid (PCI:0000:5b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            {
                "pci": "0000:5b:00",
                "xid": 79,
                "pid": "<unknown>",
                "process": "<unknown>",
                "detail": "GPU has fallen off the bus.",
            },
        ),
        (
            "kernel: NVRM: Xid (PCI:0000:5b:00): 13, Graphics Exception: ESR 0x504730=0x20",
            {"pci": "0000:5b:00", "xid": 13, "detail": "Graphics Exception: ESR 0x504730=0x20"},
        ),
        (
            "NVRM: Xid (0000:5b:00): 63, pid=812, name=python3, Row Remapper: New row marked for remapping",
            {
                "pci": "0000:5b:00",
                "xid": 63,
                "pid": "812",
                "process": "python3",
                "detail": "Row Remapper: New row marked for remapping",
            },
        ),
        (
            "NVRM: Xid (PCI:0009:01:00): 145, RLW_SRC_TRACK Nonfatal XC1 i0 Link 12 (0x004505c6 0x00000004 0x0 0x0)",
            {
                "pci": "0009:01:00",
                "xid": 145,
                "detail": "RLW_SRC_TRACK Nonfatal XC1 i0 Link 12 (0x004505c6 0x00000004 0x0 0x0)",
                "unit": "RLW_SRC_TRACK",
                "severity": "Nonfatal",
                "link": 12,
                "status": "0x00000004",
            },
        ),
    ],
)
def test_xid(line, fields):
    """An Xid line gives the GPU, the number, the process, and for NVLink 5 what the number alone does not say."""
    found = one(READERS, line + "\n")
    assert found.kind == "xid"
    assert found.fields == fields
    assert found.resource.gpu == fields["pci"]


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: GPU 0000:5b:00.0: GPU has fallen off the bus.\n",
        "NVRM: GPU at PCI:0000:5b:00.0: has fallen off the bus\n",
        (
            "NVRM: The NVIDIA GPU 0000:5b:00.0\nNVRM: (PCI ID: 10de:2330) installed in this system has\n"
            "NVRM: fallen off the bus and is not responding to commands.\n"
        ),
    ],
)
def test_off_the_bus_without_xid(text):
    """A GPU lost without an Xid line, in one line or in three, is Xid 79 once, with the address as Xid lines write it."""
    found = one(READERS, text)
    assert (found.kind, found.fields["xid"], found.fields["pci"]) == ("xid", 79, "0000:5b:00")
    assert found.end == len(text)


def test_xid_of_a_gpu_instance():
    """With MIG, the instance stands behind the address."""
    line = "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No\n"
    found = one(READERS, line)
    assert (found.fields["pci"], found.fields["xid"], found.fields["pid"]) == ("0000:01:00", 94, "7194")


def test_gpu_greeting_is_no_loss():
    """The driver's greeting of a GPU without the words is nothing."""
    assert structures(READERS, "NVRM: The NVIDIA GPU 0000:5b:00.0 is supported\nok\n") == []


@pytest.mark.parametrize(
    ("tail", "fields"),
    [
        (
            "20034, Fatal, Link 30 LTSSM Fault Up",
            {"sxid": 20034, "severity": "Fatal", "link": 30, "detail": "Link 30 LTSSM Fault Up"},
        ),
        (
            "12028, Non-fatal, Link 4 egress",
            {"sxid": 12028, "severity": "Non-fatal", "link": 4, "detail": "Link 4 egress"},
        ),
        ("20001, Data {0x1}", {"sxid": 20001, "detail": "Data {0x1}"}),
    ],
)
def test_sxid(tail, fields):
    """An SXid line gives switch, number, severity and link."""
    found = one(READERS, f"[90.740743] nvidia-nvswitch2: SXid (PCI:0000:04:00.0): {tail}\n")
    assert found.fields == {"switch": 2, "pci": "0000:04:00.0", **fields}


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        (
            (
                "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0-1,oom_memcg=/pods/b,"
                "task_memcg=/pods/b/c1,task=python3,pid=991,uid=0"
            ),
            {"constraint": "memcg", "cgroup": "/pods/b/c1", "process": "python3", "pid": 991},
        ),
        (
            "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),global_oom,task_memcg=/init.scope,task=pt_main,pid=5,uid=0",
            {"constraint": "host", "cgroup": "/init.scope", "process": "pt_main", "pid": 5},
        ),
        (
            "Out of memory: Killed process 991 (python3) total-vm:26184kB, anon-rss:4000kB, file-rss:20kB, shmem-rss:3kB",
            {"constraint": "host", "process": "python3", "pid": 991, "rss_kb": 4023},
        ),
        (
            "Out of memory: Kill process 991 (python3) score 907 or sacrifice child",
            {"constraint": "host", "process": "python3", "pid": 991},
        ),
        (
            "Memory cgroup out of memory: Killed process 991 ((worker)) total-vm:1kB, anon-rss:7kB",
            {"constraint": "memcg", "process": "(worker)", "pid": 991, "rss_kb": 7},
        ),
        (
            "slurmstepd: error: Detected 3 oom_kill events in StepId=77.0. Some of the step tasks have been OOM Killed.",
            {"constraint": "slurm", "cgroup": "StepId=77.0", "events": 3},
        ),
        (
            "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=77.batch. Some of your processes may have been killed",
            {"constraint": "slurm", "cgroup": "StepId=77.batch", "events": 1},
        ),
        ("    Reason:       OOMKilled", {"constraint": "memcg"}),
    ],
)
def test_oom_kill(line, fields):
    """The kernel's, Slurm's and Kubernetes' words for an OOM kill."""
    assert one(READERS, line + "\n").fields == fields


def test_cuda_out_of_memory_is_no_oom_kill():
    """A GPU that runs out of memory kills no process."""
    assert structures(READERS, "RuntimeError: CUDA out of memory. Tried to allocate 2 GiB\n") == []


@pytest.mark.parametrize(
    ("line", "process"),
    [
        ("INFO: task pt_data_worker:7711 blocked for more than 120 seconds.", "pt_data_worker"),
        ("[  991.220417] INFO: task kworker/u64:3:7711 blocked for more than 120 seconds.", "kworker/u64:3"),
        ("INFO: task python3:7711 tainted by x blocked for more than 120 seconds.", "python3"),
    ],
)
def test_hung_task(line, process):
    """A blocked task gives its name, pid and how long."""
    found = one(READERS, line + "\n")
    assert found.fields == {"process": process, "pid": 7711, "seconds": 120}
    assert found.resource.pid == 7711


@pytest.mark.parametrize("address", ["...", "XXXX:XX:XX", "<redacted>"])
def test_xid_with_hidden_address(address):
    """An Xid with a redacted GPU address counts, without naming a GPU."""
    found = one(READERS, f"kernel: NVRM: Xid (PCI:{address}): 137, RXPIPE interrupt hit on link 3\n")
    assert (found.fields["xid"], found.fields["pci"], found.resource.gpu) == (137, address, None)
