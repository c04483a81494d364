"""`python -m qim_devkit.demo`, which `make demo` runs."""

from __future__ import annotations

from qim_devkit.demo.app import main

if __name__ == "__main__":
    raise SystemExit(main())
