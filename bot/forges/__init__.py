"""Forges where proposed rules are reviewed: a local git repository, GitHub, GitLab. All accept the same plan."""
