"""Code of LLVM to machine code for this processor, without numba."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from llvmlite import binding  # type: ignore[import-untyped]


def machine_code(translated: bytes, name: str) -> bytes:
    """An object file of a translated kernel, in which only the function with this name can be seen."""
    machine = _machine()
    is_bitcode = translated.startswith(b"BC")
    module = binding.parse_bitcode(translated) if is_bitcode else binding.parse_assembly(translated.decode())
    options = binding.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization, options.slp_vectorization = True, False  # as numba has it
    builder = binding.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    for value in (*module.functions, *module.global_variables):  # so that many files can be loaded
        if not value.is_declaration and value.name != name:
            value.linkage = "internal"
    module.verify()
    return machine.emit_object(module)  # type: ignore[no-any-return]


def as_text(translated: bytes) -> bytes:
    """A translated kernel in the words of LLVM, which take half the room once they are compressed."""
    return str(binding.parse_bitcode(translated)).encode()


def processor() -> tuple[str, str]:
    """The name of this processor and its features; numba's settings name others."""
    name = os.environ.get("NUMBA_CPU_NAME") or binding.get_host_cpu_name()
    features = os.environ.get("NUMBA_CPU_FEATURES")
    return name, binding.get_host_cpu_features().flatten() if features is None else features


@cache
def _machine() -> Any:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    if binding.get_process_triple().startswith(("aarch64", "arm64")):
        # Else LLVM turns choices between numbers into branches, which a processor cannot foresee in a search by halves.
        binding.set_option("", "--aarch64-select-opt=false")
    name, features = processor()
    relocation = "static" if binding.get_process_triple().startswith("x86") else "default"
    target = binding.Target.from_triple(binding.get_process_triple())
    return target.create_target_machine(
        cpu=name, features=features, opt=3, reloc=relocation, codemodel="jitdefault", jit=True
    )
