#!/usr/bin/env python3
"""Compiles CUDA C++ to PTX for compute_80 by NVRTC, without a GPU or a driver.

    nvrtc.py [--line-info] [--cub] SOURCE.cu TARGET.ptx

Needs the packages nvidia-cuda-nvrtc, nvidia-cuda-runtime and nvidia-cuda-crt of version 13.0, and for
--cub also nvidia-cuda-cccl. The headers of the toolkit are on the include path.
"""

import ctypes
import pathlib
import re
import sys


def toolkit():
    """Returns the folder with the toolkit's `lib` and `include`."""
    import nvidia

    for place in nvidia.__path__:
        if (found := pathlib.Path(place, "cu13")).is_dir():
            return found
    sys.exit("nvrtc.py: the package nvidia-cuda-nvrtc 13.0 is not installed")


def compile_ptx(source, name, options):
    """Compiles a source text to PTX. Exits with the compiler's log on an error."""
    libraries = toolkit() / "lib"
    # NVRTC opens this library by name, which the loader finds only if it is already loaded.
    ctypes.CDLL(str(libraries / "libnvrtc-builtins.so.13.0"), ctypes.RTLD_GLOBAL)
    nvrtc = ctypes.CDLL(str(libraries / "libnvrtc.so.13"))
    program = ctypes.c_void_p()
    create = nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), name.encode(), 0, None, None)
    if create != 0:
        sys.exit(f"nvrtc.py: nvrtcCreateProgram returns {create}")
    texts = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
    result = nvrtc.nvrtcCompileProgram(program, len(options), texts)

    def text(size_of, get):
        size = ctypes.c_size_t()
        size_of(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        get(program, buffer)
        return buffer.value.decode()

    if result != 0:
        sys.exit(f"nvrtc.py: {name}: {text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)}")
    return text(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)


def main():
    flags = {argument for argument in sys.argv[1:] if argument.startswith("--")}
    paths = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    if len(paths) != 2 or flags - {"--line-info", "--cub"}:
        sys.exit(__doc__)
    include = toolkit() / "include"
    options = ["--gpu-architecture=compute_80", "-std=c++17", f"-I{include}"]
    if "--line-info" in flags:
        options.append("--generate-line-info")
    if "--cub" in flags:
        options += ["-default-device", f"-I{include / 'cccl'}"]
    source = pathlib.Path(paths[0])
    ptx = compile_ptx(source.read_text(), source.name, options)
    # Remove the folder from the names of source files.
    ptx = re.sub(r'(\.file\s+\d+ ")[^"]*/', r"\1", ptx)
    pathlib.Path(paths[1]).write_text(ptx)


if __name__ == "__main__":
    main()
