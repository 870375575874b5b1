"""The parts of an evidence bundle by their names: what is a log, what has readers of its own, what describes the rest.

The one list of them; who reads logs leaves these alone, and who reads parts looks for these.
"""

from __future__ import annotations

FOLDERS = ("stacks", "flight_recorder", "ras", "metrics", "ebpf")  # with many files, read by connectors.bundles.parts
FILES = ("events.json", "pods.json", "nodes.json", "slurm.json", "processes.json")  # likewise, one each
CHECKS = "hardware"  # results of hardware checks by node: read as logs too, for most of them are
PARTS = (*FOLDERS, *FILES, CHECKS)
ATTEMPTS = "attempts"  # earlier attempts, each a bundle
BASELINE = "baseline"  # logs of a good run of the same job
DESCRIPTIONS = ("bundle.yaml", "bundle.yml", "job.yaml", "job.yml", "case.yaml", "case.yml")
NOT_LOGS = frozenset({*FOLDERS, ATTEMPTS, BASELINE})  # folders
NO_LOG_FILES = frozenset({*FILES, *DESCRIPTIONS})
NOT_READ = frozenset({BASELINE})
