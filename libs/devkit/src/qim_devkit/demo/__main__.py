"""`python -m qim_devkit.demo`, which `make demo` runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from qim_devkit.demo.app import main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m qim_devkit.demo", description="The hiking group, every number checked."
    )
    parser.add_argument("--poster", type=Path, metavar="FILE", help="also draw README's picture (docs/demo.svg)")
    raise SystemExit(main(poster=parser.parse_args().poster))
