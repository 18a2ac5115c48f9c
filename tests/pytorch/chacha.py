"""The random numbers of `layer_engine::random` in numpy: ChaCha with 8 rounds (D. J. Bernstein, 2008)."""

import numpy as np

PURPOSES = {"dropout": 2}
CONSTANTS = np.frombuffer(b"expand 32-byte k", dtype="<u4")
MASK = (1 << 64) - 1


def uniform(seed, purpose, iteration, name, samples, elements):
    """Returns numbers in [0, 1) of shape (samples, elements). Each sample has a separate stream.

    Args:
        seed: Seed of the training run.
        purpose: A key of `PURPOSES`.
        iteration: Index of the iteration.
        name: Name of the layer.
    """
    key = np.array([seed, PURPOSES[purpose], iteration, fnv1a(name)], dtype="<u8").view("<u4")
    blocks = -(-elements // 8)
    state = np.empty((16, samples, blocks), dtype=np.uint32)
    state[:4] = CONSTANTS[:, None, None]
    state[4:12] = key[:, None, None]
    state[12], state[13] = np.arange(blocks, dtype=np.uint32), 0
    state[14], state[15] = np.arange(samples, dtype=np.uint32)[:, None], 0
    words = np.moveaxis(rounds(state), 0, -1).reshape(samples, blocks * 16)
    numbers = np.ascontiguousarray(words).view("<u8")[:, :elements]
    return (numbers >> np.uint64(11)) / float(1 << 53)


def rounds(state):
    x = state.copy()
    with np.errstate(over="ignore"):
        for _ in range(4):
            for a, b, c, d in [
                (0, 4, 8, 12),
                (1, 5, 9, 13),
                (2, 6, 10, 14),
                (3, 7, 11, 15),
                (0, 5, 10, 15),
                (1, 6, 11, 12),
                (2, 7, 8, 13),
                (3, 4, 9, 14),
            ]:
                for target, source, mixed, left in [(a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)]:
                    x[target] += x[source]
                    x[mixed] ^= x[target]
                    x[mixed] = (x[mixed] << np.uint32(left)) | (x[mixed] >> np.uint32(32 - left))
        return x + state


def fnv1a(text):
    hashed = 0xCBF29CE484222325
    for byte in text.encode():
        hashed = (hashed ^ byte) * 0x100000001B3 & MASK
    return hashed
