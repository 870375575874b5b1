"""What is learned from incidents whose cause people named: pure parts. Text and counts in, proposals out."""
