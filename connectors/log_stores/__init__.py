"""Log stores: Loki and Elasticsearch, and the plan of queries for one job."""
