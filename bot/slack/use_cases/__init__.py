"""What a listener does with what somebody wants: checks that they may, and writes it down.

No call to Slack and nothing slow: a listener has three seconds, and fifty of them come at once. What cannot be written down is
an error, whose words are for whoever asked. Every wish has Slack's own id as its key, so a second delivery changes nothing.
"""
