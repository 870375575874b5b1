"""Chat messages and their outbox: requests and replies, automatic notifications, mutes."""
