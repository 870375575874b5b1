"""The names of the parts of an evidence bundle: logs, parts with their own readers, descriptions.

This is the only list of them. Readers of logs skip these names, and readers of parts look for them.
"""

from __future__ import annotations

FOLDERS = ("stacks", "flight_recorder", "ras", "metrics", "ebpf")  # with many files, read by connectors.bundles.parts
FILES = ("events.json", "pods.json", "nodes.json", "slurm.json", "processes.json")  # likewise, one each
CHECKS = "hardware"  # results of hardware checks by node; most are also read as logs
PARTS = (*FOLDERS, *FILES, CHECKS)
ATTEMPTS = "attempts"  # earlier attempts, each a separate bundle
BASELINE = "baseline"  # logs of a successful run of the same job
DESCRIPTIONS = ("bundle.yaml", "bundle.yml", "job.yaml", "job.yml", "case.yaml", "case.yml")
NOT_LOGS = frozenset({*FOLDERS, ATTEMPTS, BASELINE})  # folders
NO_LOG_FILES = frozenset({*FILES, *DESCRIPTIONS})
NOT_READ = frozenset({BASELINE})
