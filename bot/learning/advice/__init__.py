"""Advice on existing rules from closed incidents: narrow, widen, promote, retire; unknown failures by cost."""
