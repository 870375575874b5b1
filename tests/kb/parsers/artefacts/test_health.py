"""Results of hardware checks: what did not pass is an event, everything else says nothing."""

import json

import pytest

from kb.parsers.artefacts.health import MAX_EVENTS, read_health

DIAG = """Successfully ran diagnostic for group.
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
|-----  Deployment  --------+------------------------------------------------|
| NVML Library              | Pass                                           |
|-----  Integration  -------+------------------------------------------------|
| PCIe                      | Fail - GPU: 3                                  |
| Warning                   | GPU 3 The link to the host is slower than it   |
|                           | should be.                                     |
|-----  Hardware  ----------+------------------------------------------------|
| GPU Memory                | Pass - All                                     |
+---------------------------+------------------------------------------------+
"""
NCCL = """# nThread 1 nGpus 8 minBytes 8 maxBytes 134217728
#       size         count      type   redop    root     time   algbw   busbw #wrong
   134217728      33554432     float     sum      -1   1234.5   108.7   190.3      {wrong}
# Out of bounds values : {wrong} {verdict}
# Avg bus bandwidth    : 190.3
"""
PORTS = """CA 'mlx5_0'
\tCA type: MT4129
\tPort 1:
\t\tState: {state}
\t\tPhysical state: {physical}
\t\tRate: 400
\t\tSM lid: {lid}
CA 'mlx5_1'
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tRate: 400
\t\tSM lid: 1
"""
SMI = """==============NVSMI LOG==============
Driver Version                            : 570.86.15
GPU 00000000:18:00.0
    ECC Errors
        Volatile
            SRAM Uncorrectable Parity     : 0
            DRAM Uncorrectable            : {now}
        Aggregate
            DRAM Uncorrectable            : 4
    Remapped Rows
        Remapping Failure Occurred        : {failed}
    GPU Recovery Action                   : {action}
    Clocks Event Reasons
        HW Thermal Slowdown               : {hot}
GPU 00000000:2A:00.0
    Remapped Rows
        Remapping Failure Occurred        : No
"""


def failures_of(text, node="n1"):
    """Return class, GPU and message of each failure; None for an unknown file."""
    found, gaps = read_health(text.encode() if isinstance(text, str) else text, "hardware/n1/x", node, 5.0)
    assert gaps == ()
    return None if found is None else [(item.reason, item.resource.gpu, item.message) for item in found]


def diag(status, warnings=(), name="memory", key="DCGM Diagnostic"):
    """The JSON of dcgmi diag with one test."""
    one = {"entity_group": "GPU", "entity_id": 5, "status": status, "warnings": list(warnings)}
    return json.dumps(
        {key: {"test_categories": [{"category": "Hardware", "tests": [{"name": name, "results": [one]}]}]}}
    )


@pytest.mark.parametrize(
    ("text", "failures"),
    [
        (DIAG, [("pcie", "3", "dcgmi diag PCIe: GPU: 3 GPU 3 The link to the host is slower than it should be.")]),
        (DIAG.replace("Fail - GPU: 3", "Pass - All   "), []),
        (diag("Pass"), []),
        (diag("Skip"), []),
        (
            diag("Fail", [{"warning": "one row could not be remapped"}]),
            [("memory", "5", "dcgmi diag memory: one row could not be remapped")],
        ),
        (diag("FAIL", name="nvlink", key="DCGM GPU Diagnostic"), [("nvlink", "5", "dcgmi diag nvlink: failed")]),
        (NCCL.format(wrong=0, verdict="OK"), []),
        (
            NCCL.format(wrong=7, verdict="FAILED"),
            [("wrong_results", None, "nccl-tests: Out of bounds values : 7 FAILED")],
        ),
        (PORTS.format(state="Active", physical="LinkUp", lid=1), []),
        (PORTS.format(state="Down", physical="Disabled", lid=1), []),
        (PORTS.format(state="Down", physical="Polling", lid=0), []),
        (
            PORTS.format(state="Down", physical="Polling", lid=1),
            [("port", None, "ibstat: mlx5_0 port 1: State: Down, Physical state: Polling, Rate: 400")],
        ),
        (SMI.format(now=0, failed="No", action="None", hot="Not Active"), []),
        (
            SMI.format(now=2, failed="Yes", action="Reset", hot="Active"),
            [
                ("memory", "00000000:18:00.0", "nvidia-smi -q: Remapping Failure Occurred : Yes"),
                ("memory", "00000000:18:00.0", "nvidia-smi -q: DRAM Uncorrectable : 2"),
                ("recovery", "00000000:18:00.0", "nvidia-smi -q: GPU Recovery Action : Reset"),
                ("thermal", "00000000:18:00.0", "nvidia-smi -q: HW Thermal Slowdown : Active"),
            ],
        ),
        (
            json.dumps(
                [
                    {"component": "cpu", "states": [{"name": "cpu", "health": "Healthy", "reason": "ok"}]},
                    {
                        "component": "accelerator-nvidia-nvlink",
                        "states": [{"health": "Unhealthy", "reason": "3 links off"}],
                    },
                ]
            ),
            [("nvlink", None, "gpud accelerator-nvidia-nvlink: 3 links off")],
        ),
    ],
)
def test_each_tool(text, failures):
    """What failed comes with its class, its GPU and the tool's words; what passed, was skipped or switched off does not."""
    assert failures_of(text) == failures


@pytest.mark.parametrize(
    "data", [b"", b"plain words", b"{}", b"[1]", b'{"DCGM Diagnostic": 3}', b"{" * 9999, b"\xff\xfe\x00"]
)
def test_other_files_are_nobodys(data):
    """What no tool known here wrote is left to who reads logs."""
    assert failures_of(data) is None


def test_failures_say_where_and_are_bounded():
    """Each names its node and time; beyond the bound the rest is a gap."""
    many = json.loads(diag("Fail"))
    test = many["DCGM Diagnostic"]["test_categories"][0]["tests"][0]
    test["results"] = test["results"] * (MAX_EVENTS + 1)
    found, gaps = read_health(json.dumps(many).encode(), "x", "n1", 5.0)
    assert {(item.kind, item.resource.node, item.time) for item in found} == {("health_check", "n1", 5.0)}
    assert found is not None
    assert (len(found), [gap.code for gap in gaps]) == (MAX_EVENTS, ["health-too-many"])
