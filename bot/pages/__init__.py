"""Pages of incidents: one self-contained HTML report each, and the overview that leads to them.

No page needs a script or anything from elsewhere. What comes from logs and people is shown, never obeyed.
"""
