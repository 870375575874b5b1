"""Pages of incidents: one self-contained HTML report each, and the overview that leads to them.

Pages work without their script, which only copies commands, and load nothing from elsewhere. Text from logs and people is escaped.
"""
