"""Tests of kb.parsers.artefacts.pystacks."""
