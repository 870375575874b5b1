"""What surrounds a finding: the circumstances on which its texts depend, its place in the code, and what is missing.

It words nothing itself: the texts are those of the rules.
"""
