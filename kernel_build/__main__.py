"""`python -m kernel_build`: build the kernels of this checkout."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kernel_build import building
from kernel_build.targets import TARGETS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m kernel_build", description="Build the kernels of this checkout.")
    parser.add_argument(
        "--target", choices=[target.tag for target in TARGETS], help="a system; this one if none is given"
    )
    parser.add_argument("--out", type=Path, help="a folder; that of the package if none is given")
    options = parser.parse_args()
    sys.path.insert(0, str(building.PACKAGE.parent))
    try:
        if options.target is None:
            building.install()
        else:
            target = next(target for target in TARGETS if target.tag == options.target)
            print(building.build(target, options.out or Path("build") / target.tag, portable=True))
    except building.BuildError as e:
        sys.exit(f"vizsla: {e}")


if __name__ == "__main__":
    main()
