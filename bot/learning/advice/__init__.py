"""Advice on existing rules from closed incidents (narrow, widen, promote, retire), and unknown failures by cost."""
