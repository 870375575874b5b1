"""Regexes of many words: the same answers as `re` on lines as logs have them."""

from __future__ import annotations

import re

import pytest

from kb.facts.circumstances import _DEVICES
from kb.regex.one_pass import one_pass

LINES = (
    "", "node-1:12:34 [0] NCCL INFO Bootstrap", "XNCCL INFO", "RCCL version 2.18", "HCCL error", "HCL: port down", "libtpu.so", "mylibtpu",
    "TPU v4 found", "RuntimeError: CUDA error: an illegal memory access", "CUDA is not available", "cuda:0", "xcuda:0", "device='cpu'",
    "device_type: mps", "hipErrorNoDevice", "HIP error: out of memory", "H100-SXM", "NVRM: Xid 79", "Level Zero", "überhpu:0", "\ud800 npu:3", "neuron:nd0:hbm error", "Neuron runtime failed",
)  # fmt: skip


@pytest.mark.parametrize("device", _DEVICES)
def test_lines_of_devices_are_found_as_re_finds_them(device):
    """Whatever stands around the words, and whether or not the text can be encoded."""
    expected = [line for line in LINES if re.search(_DEVICES[device], line, re.ASCII)]

    assert [line for line in LINES if one_pass(_DEVICES[device])(line.encode("utf-8", "replace"))] == expected
    assert expected


def test_what_re2_cannot_read_raises():
    """Such as a look-ahead."""
    with pytest.raises(Exception, match="invalid perl operator"):
        one_pass("a(?=b)")
