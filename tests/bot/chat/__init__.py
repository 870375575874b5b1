"""Tests of the local double of Slack."""
