"""Learns rules from incidents whose cause people named. Pure: text and counts in, proposals out."""
