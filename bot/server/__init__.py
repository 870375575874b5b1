"""`signalbox serve`: processes and their supervisor, webhooks, health, metrics, the job watcher."""
