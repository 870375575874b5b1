"""Tests of the documentation: its site, and the commands that it shows."""
