"""Tests of kb.rulebase."""
