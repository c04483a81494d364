"""`python -m tests.mutants [WORD...]`: weaken one rule at a time and show which test notices.

With words only the mutants whose names hold one of them. One line each, then `N passed, N failed`; exit status 1 when
one survives, or when the suite fails on the sources as they are.
"""

from __future__ import annotations

import sys

from tests.mutants.rules import MUTANTS
from tests.mutants.runner import verdicts


def main(words: list[str]) -> int:
    """The exit status."""
    chosen = [mutant for mutant in MUTANTS if not words or any(word in mutant.name for word in words)]
    if not chosen:
        print(f"no mutant is named like {', '.join(words)}", file=sys.stderr)
        return 2
    passed = failed = 0
    for verdict in verdicts([None, *chosen]):
        print(verdict, flush=True)
        if verdict.passed:
            passed += 1
        else:
            failed += 1
            print(verdict.run.output[-3000:], file=sys.stderr, flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
