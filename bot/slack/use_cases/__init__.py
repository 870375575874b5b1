"""What listeners do for people: check permissions, then write the request to the ledger.

Nothing here calls Slack or is slow: a listener has three seconds, and fifty can arrive at once. A failed write is an error with a
message for the person. The key of each request is Slack's own id, so a redelivery changes nothing.
"""
