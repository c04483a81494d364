"""`python -m tests.mutants [WORD...]`: weaken one rule at a time and show which test notices.

With words only the mutants whose names hold one of them. One line each, then `N passed, N failed`; exit status 1 when
one survives, or when the suite fails without any.
"""

from __future__ import annotations

import sys

from tests.mutants.rules import MUTANTS
from tests.mutants.runner import run_suite, verdicts


def main(words: list[str]) -> int:
    """The exit status."""
    chosen = [mutant for mutant in MUTANTS if not words or any(word in mutant.name for word in words)]
    if not chosen:
        print(f"no mutant is named like {', '.join(words)}", file=sys.stderr)
        return 2
    failed = 0
    for verdict in verdicts(chosen):
        print(verdict, flush=True)
        if not verdict.killer:
            failed += 1
            print(verdict.output[-2000:], file=sys.stderr, flush=True)
    if not words:
        untouched = run_suite(None)
        if untouched.exit_code:
            print(f"the suite fails without a mutant:\n{untouched.output[-4000:]}", file=sys.stderr)
            return 1
        print(f"the suite passes without a mutant ({untouched.seconds:.0f} s)")
    print(f"{len(chosen) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
