"""Drafts of rules from closed incidents: cases, anonymised logs, the rule folder, edits of people."""
