"""What people type: commands, and names of jobs in them."""
