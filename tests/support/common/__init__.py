"""What several test modules share: samples, doubles and small helpers."""
