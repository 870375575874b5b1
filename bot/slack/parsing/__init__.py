"""What people type: commands, and job names in messages."""
