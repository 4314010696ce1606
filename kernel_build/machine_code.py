"""Compiles LLVM IR to object files for a processor level, which need not be this machine's."""

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import binding

from kernel_build.targets import Level
from kernel_build.translating import ENTRY

_LOOKUPS = {
    "aarch64": """
        declare <16 x i8> @llvm.aarch64.neon.tbl1.v16i8(<16 x i8>, <16 x i8>)
        define <16 x i8> @vizsla_table_lookup(<16 x i8> %table, <16 x i8> %places) alwaysinline {
          %found = call <16 x i8> @llvm.aarch64.neon.tbl1.v16i8(<16 x i8> %table, <16 x i8> %places)
          ret <16 x i8> %found
        }""",
    "x86-64": """
        declare <16 x i8> @llvm.x86.ssse3.pshuf.b.128(<16 x i8>, <16 x i8>)
        define <16 x i8> @vizsla_table_lookup(<16 x i8> %table, <16 x i8> %places) alwaysinline {
          %found = call <16 x i8> @llvm.x86.ssse3.pshuf.b.128(<16 x i8> %table, <16 x i8> %places)
          ret <16 x i8> %found
        }""",
}
"""What `engine/intrinsics.py` calls, by the first letters of a level."""


def object_file(bitcode: bytes, name: str, triple: str, level: Level) -> bytes:
    """The object file of a translated kernel; only the function with this name is exported."""
    machine = _machine(triple, level.processor)
    module = binding.parse_bitcode(bitcode)
    module.triple, module.data_layout = triple, str(machine.target_data)
    for start, source in _LOOKUPS.items():
        if level.name.startswith(start):
            lookup = binding.parse_assembly(source)
            lookup.triple, lookup.data_layout = triple, str(machine.target_data)
            module.link_in(lookup)
    for value in (*module.functions, *module.global_variables):  # so that many files can be linked
        if not value.is_declaration and value.name != ENTRY:
            value.linkage = "internal"
    entry = module.get_function(ENTRY)
    entry.name = name
    entry.visibility = "hidden"
    module.verify()
    options = binding.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization, options.slp_vectorization = True, False  # as numba has it
    builder = binding.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return machine.emit_object(module)


@cache
def _machine(triple: str, processor: str) -> Any:
    _initialize()
    target = binding.Target.from_triple(triple)
    return target.create_target_machine(cpu=processor, opt=3, reloc="pic", codemodel="default")


@cache
def _initialize() -> None:
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    # Otherwise LLVM turns selects into branches, which ARM processors mispredict in a binary search.
    binding.set_option("", "--aarch64-select-opt=false")
