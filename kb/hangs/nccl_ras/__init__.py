"""Compares several answers of NCCL RAS with each other."""
