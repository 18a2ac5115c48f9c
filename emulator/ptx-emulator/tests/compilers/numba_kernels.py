#!/usr/bin/env python3
"""Compiles Numba's CUDA kernels to PTX for compute_80, without a GPU or a driver: numba_kernels.py FOLDER

Needs the packages numba-cuda 0.30, nvidia-nvvm and nvidia-cuda-runtime 13.0. Writes FOLDER/NAME.ptx.
"""

import pathlib
import sys

from numba import cuda, float32, int32, types, uint32

TILE = 16


def saxpy(factor, x, y):
    i = cuda.grid(1)
    if i < x.shape[0]:
        y[i] = factor * x[i] + y[i]


def matrix_product(a, b, c):
    left = cuda.shared.array((TILE, TILE), float32)
    right = cuda.shared.array((TILE, TILE), float32)
    row, column = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0.0)
    for start in range(0, a.shape[1], TILE):
        left[tx, ty] = a[row, start + ty] if row < a.shape[0] and start + ty < a.shape[1] else 0.0
        right[tx, ty] = b[start + tx, column] if start + tx < b.shape[0] and column < b.shape[1] else 0.0
        cuda.syncthreads()
        for i in range(TILE):
            total += left[tx, i] * right[i, ty]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = total


def block_sum(values, sums):
    scratch = cuda.shared.array(128, float32)
    i = cuda.grid(1)
    scratch[cuda.threadIdx.x] = values[i] if i < values.shape[0] else 0.0
    cuda.syncthreads()
    half = 64
    while half > 0:
        if cuda.threadIdx.x < half:
            scratch[cuda.threadIdx.x] += scratch[cuda.threadIdx.x + half]
        cuda.syncthreads()
        half //= 2
    if cuda.threadIdx.x == 0:
        sums[cuda.blockIdx.x] = scratch[0]


def histogram(values, counts):
    i = cuda.grid(1)
    if i < values.shape[0]:
        cuda.atomic.add(counts, values[i] % counts.shape[0], 1)


def ballots(values, masks):
    i = cuda.grid(1)
    mask = cuda.ballot_sync(0xFFFFFFFF, values[i] > 0)
    if cuda.laneid == 0:
        masks[i // 32] = mask


KERNELS = {
    saxpy: (float32, float32[::1], float32[::1]),
    matrix_product: (float32[:, ::1],) * 3,
    block_sum: (float32[::1], float32[::1]),
    histogram: (int32[::1], int32[::1]),
    ballots: (int32[::1], uint32[::1]),
}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    for function, arguments in KERNELS.items():
        ptx, _ = cuda.compile(
            function, types.void(*arguments), device=False, abi="numba", cc=(8, 0), output="ptx"
        )
        (folder / f"{function.__name__}.ptx").write_text(ptx)


if __name__ == "__main__":
    main()
