"""Tests of kb.rulebase.schema."""
