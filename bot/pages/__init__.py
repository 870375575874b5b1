"""Pages of incidents: one self-contained HTML report each, and the overview that leads to them.

Pages need no scripts and load nothing from elsewhere. Text from logs and people is escaped.
"""
