"""The build hook of the package: puts the compiled kernels into a wheel, or beside the sources of an editable install.

It runs before numba is installed. It requests numba only if the kernels are not in the cache of this checkout.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from kernel_build import building  # noqa: E402


class KernelHook(BuildHookInterface):
    """Builds the kernels of a wheel."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """What this build needs: nothing if the kernels are there."""
        if self.target_name != "wheel" or building.Plan.chosen().library.exists():
            return []
        tools: list[str] = self.metadata.core.optional_dependencies["build"]
        return [*tools, *([] if building.Plan.chosen().compiler() else ["ziglang"])]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the kernels and add them to the wheel."""
        if self.target_name != "wheel":
            return
        plan, editable = building.Plan.chosen(), version == "editable"
        command = [sys.executable, "-m", "kernel_build", *(["--install"] if editable else [])]
        done = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            self.app.abort(done.stderr.strip().splitlines()[-1] if done.stderr else "the kernels could not be built")
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{plan.tag}"
        if not editable:
            build_data["force_include"][str(plan.library)] = f"vizsla/kernels/{plan.target.library}"
