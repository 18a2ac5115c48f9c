#!/usr/bin/env python3
"""Compiles the kernels to the PTX beside them with NVRTC 13.0.88. Needs no GPU and no driver.

Each family has two variants: FAMILY.ptx for operands in single precision, and FAMILY-bf16.ptx for those in
16 bits.

    pip install nvidia-cuda-nvrtc==13.0.88
    compile.py [--check] [FAMILY ...]      # all families by default

With --check it writes nothing, and exits with 1 and the names of the families whose PTX differs from their
source's. It exits with 3 if the package is not installed. The variable NVRTC names a folder with the
libraries, instead of the package's.
"""

import ctypes
import itertools
import os
import pathlib
import sys

VERSION = (13, 0)
OPTIONS = ["--gpu-architecture=compute_80", "-std=c++17"]
# Suffix of the PTX of a variant, and its options.
VARIANTS = {"": [], "-bf16": ["--define-macro=BF16"]}
HERE = pathlib.Path(__file__).resolve().parent


def libraries():
    """Returns the folder with NVRTC's libraries."""
    if folder := os.environ.get("NVRTC"):
        return pathlib.Path(folder)
    try:
        import nvidia
    except ImportError:
        missing()
    for place in nvidia.__path__:
        if (found := pathlib.Path(place, "cu13", "lib")).is_dir():
            return found
    missing()


def missing():
    print("compile.py: the package nvidia-cuda-nvrtc==13.0.88 is not installed", file=sys.stderr)
    sys.exit(3)


def open_nvrtc():
    folder = libraries()
    # NVRTC opens this library by name. The loader finds it only if it is already open.
    ctypes.CDLL(str(folder / "libnvrtc-builtins.so.13.0"), ctypes.RTLD_GLOBAL)
    nvrtc = ctypes.CDLL(str(folder / "libnvrtc.so.13"))
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    if (major.value, minor.value) != VERSION:
        sys.exit(f"compile.py: NVRTC is {major.value}.{minor.value}, expected {VERSION[0]}.{VERSION[1]}")
    return nvrtc


def compile_ptx(nvrtc, source, variant):
    """Returns the PTX of a file. Exits with the compiler's log on an error."""
    headers = sorted(HERE.glob("*.cuh"))
    texts = (ctypes.c_char_p * len(headers))(*[header.read_bytes() for header in headers])
    names = (ctypes.c_char_p * len(headers))(*[header.name.encode() for header in headers])
    program = ctypes.c_void_p()
    code, name = source.read_bytes(), source.name.encode()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), code, name, len(headers), texts, names)
    options = [option.encode() for option in OPTIONS + VARIANTS[variant]]
    result = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))

    def text(size_of, get):
        size = ctypes.c_size_t()
        size_of(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        get(program, buffer)
        return buffer.value.decode()

    if result != 0:
        sys.exit(f"compile.py: {source.name}: {text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)}")
    return text(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)


def main():
    arguments = sys.argv[1:]
    check = "--check" in arguments
    families = [argument for argument in arguments if argument != "--check"]
    sources = [HERE / f"{family}.cu" for family in families] or sorted(HERE.glob("*.cu"))
    nvrtc = open_nvrtc()
    different = []
    for source, variant in itertools.product(sources, VARIANTS):
        ptx, target = compile_ptx(nvrtc, source, variant), HERE / f"{source.stem}{variant}.ptx"
        if not check:
            target.write_text(ptx)
        elif not target.exists() or target.read_text() != ptx:
            different.append(target.stem)
    if different:
        sys.exit(f"compile.py: the PTX differs from its source's: {', '.join(different)}")


if __name__ == "__main__":
    main()
