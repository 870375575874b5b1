"""Log stores that are queried: Loki and Elasticsearch, and the plan of what to ask them for."""
