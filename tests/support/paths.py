"""Where things lie in the checkout."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUNDLES = ROOT / "tests" / "bundles"
DEMO = ROOT / "bot" / "demo" / "incidents" / "shard-corrupt"
