"""The task queue in the database: tasks, their payloads, and the workers that claim them."""
