"""Runs a campaign by its name.

python tests/campaigns fuzz --count 1000
"""

import sys
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    names = sorted(path.stem for path in HERE.glob("[!_]*.py"))
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in names:
        sys.exit(f"usage: python tests/campaigns NAME [--help]\nNAME is one of {', '.join(names)}")
    sys.argv[:2] = [f"campaigns {name}"]
    sys.path[0] = str(HERE.parent)  # as in tests: campaigns and kit stand beside each other
    sys.exit(import_module(f"campaigns.{name}").main())


if __name__ == "__main__":
    main()
