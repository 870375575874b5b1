"""What listeners do for people: they check permissions, then write the request to the ledger.

Nothing here calls Slack or is slow: a listener has three seconds, and fifty requests can arrive at the same time. A failed write
raises an error with a message for the person. The key of each request is Slack's id, so a redelivery changes nothing.
"""
