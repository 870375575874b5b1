"""What several answers of NCCL RAS tell together."""
