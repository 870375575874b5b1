"""The context of a finding: the circumstances that its sentences depend on, its place in the code, and missing evidence.

It contains no wording: the sentences come from the rules.
"""
