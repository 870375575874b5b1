"""Where proposed rules are reviewed: a local git repository, GitHub, GitLab. All take the same plan."""
