"""`python -m kernel_build`: build the kernels of this checkout.

Environment: VIZSLA_TARGET names another system than this one; VIZSLA_LEVELS=all builds for all kinds of its processors,
otherwise for this machine's alone; VIZSLA_KERNEL_CACHE names a folder that several checkouts share.
"""

from __future__ import annotations

import argparse
import sys

from kernel_build import building


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m kernel_build", description="Build the kernels of this checkout.")
    parser.add_argument("--install", action="store_true", help="put the library beside its sources")
    options = parser.parse_args()
    try:
        plan = building.Plan.chosen()
        plan.build()
        if options.install:
            plan.install()
    except building.BuildError as e:
        sys.exit(f"vizsla: {e}")


if __name__ == "__main__":
    main()
