"""Drafts of rules from closed incidents: cases, anonymised logs, the rule folder, and edits by people."""
