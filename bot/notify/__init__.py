"""What is sent without being asked for: messages and their outbox, announcements, mutes."""
