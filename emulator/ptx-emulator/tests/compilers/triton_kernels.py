#!/usr/bin/env python3
"""Compiles Triton kernels to PTX for compute_80, without a GPU or a driver: triton_kernels.py FOLDER

Needs the package triton. Writes FOLDER/NAME.ptx. The kernels take two additional pointers, which may be
null.
"""

import pathlib
import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def vector_add(x, y, out, count, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    tl.store(out + places, tl.load(x + places, mask=inside) + tl.load(y + places, mask=inside), mask=inside)


@triton.jit
def softmax(out, values, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    places = tl.arange(0, BLOCK)
    inside = places < columns
    x = tl.load(values + row * columns + places, mask=inside, other=-float("inf"))
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(out + row * columns + places, x / tl.sum(x, axis=0), mask=inside)


@triton.jit
def column_sums(values, out, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.arange(0, ROWS)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    x = tl.load(values + row[:, None] * columns + column[None, :], mask=inside, other=0.0)
    tl.store(out + column, tl.sum(x, axis=0), mask=column < columns)


@triton.jit
def running_sum(values, out, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + places, tl.cumsum(tl.load(values + places), axis=0))


@triton.jit
def matrix_product_tensor_cores(a, b, c, SIDE: tl.constexpr):
    i = tl.arange(0, SIDE)
    places = i[:, None] * SIDE + i[None, :]
    tl.store(c + places, tl.dot(tl.load(a + places), tl.load(b + places)))


POINTER = "*fp32"
KERNELS = [
    (vector_add, {"x": POINTER, "y": POINTER, "out": POINTER, "count": "i32"}, {"BLOCK": 512}),
    (softmax, {"out": POINTER, "values": POINTER, "columns": "i32"}, {"BLOCK": 512}),
    (
        column_sums,
        {"values": POINTER, "out": POINTER, "rows": "i32", "columns": "i32"},
        {"ROWS": 64, "COLUMNS": 32},
    ),
    (running_sum, {"values": POINTER, "out": POINTER}, {"BLOCK": 1024}),
    # Uses tensor cores, which the emulator must report as unsupported.
    (matrix_product_tensor_cores, {"a": "*fp16", "b": "*fp16", "c": POINTER}, {"SIDE": 32}),
]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    for function, signature, constants in KERNELS:
        signature = signature | dict.fromkeys(constants, "constexpr")
        source = ASTSource(fn=function, signature=signature, constexprs=constants)
        ptx = triton.compile(source, target=GPUTarget("cuda", 80, 32)).asm["ptx"]
        (folder / f"{function.__name__}.ptx").write_text(ptx)


if __name__ == "__main__":
    main()
