"""Compares several NCCL RAS answers with each other."""
