"""Tests of kb.parsers.artefacts.ebpf."""
