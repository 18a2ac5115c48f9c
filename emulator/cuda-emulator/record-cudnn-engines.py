"""Records which engines cuDNN proposes for convolutions, without a GPU.

    python record-cudnn-engines.py FOLDER > engines.tsv
    python record-cudnn-engines.py --table engines.tsv > src/state/cudnn/engines/table.rs

FOLDER holds the unpacked wheels nvidia-cudnn-cu13 9.19.0.56, nvidia-cublas 13.1 and
nvidia-cuda-nvrtc 13.0 (their folders `cudnn` and `cu13`). A descriptor of device properties stands
for an H100. One line is printed for each engine configuration of each convolution, in cuDNN's
order: the class of the convolution, its shape, the pass, the precision with the layout, the
heuristic mode, the rank in the list, the engine, its numerical notes, its behaviour notes, the
workspace in bytes, the status of the finalised plan, and whether the engine is proposed with a
target of 16 multiprocessors.

The table has a line for each pass, engine and precision. An engine is said to be of a class if it
was proposed for at least half of the recorded convolutions of the class. The workspace is a sum of
multiples of the sizes of the three tensors, fitted by the median error.
"""

import ast
import collections
import ctypes
import itertools
import json
import statistics
import sys
from pathlib import Path

H100 = {
    "maxGridSize": [2147483647, 65535, 65535],
    "maxBlockSize": [1024, 1024, 64],
    "regsPerBlock": 65536,
    "multiProcessorCount": 132,
    "warpSize": 32,
    "maxSharedMemoryPerBlock": 49152,
    "maxSharedMemoryPerBlockOptin": 232448,
    "reservedSharedMemoryPerBlock": 1024,
    "maxRegistersPerSM": 65536,
    "maxCtasPerSM": 32,
    "maxThreadsPerBlock": 1024,
    "maxThreadsPerSM": 2048,
    "pciDeviceId": 0,
    "isTccDriver": 0,
    "supportCoopLaunch": 1,
    "totalGlobalMem": 85899345920,
    "smClockRateKHz": 1980000,
    "memClockRateKHz": 2619000,
    "l2CacheSize": 52428800,
    "cudaDeviceId": 0,
    "deviceVer": 900,
    "driverVer": 13000,
    "deviceName": "NVIDIA H100 80GB HBM3",
}

# Kinds of `cudnnBackendDescriptorType_t`.
CONVOLUTION, ENGINE, CONFIG, HEURISTIC, PLAN, GRAPH, TENSOR, DEVICE = 1, 2, 3, 4, 5, 15, 17, 38
# Types of `cudnnBackendAttributeType_t`, and their types in C.
DATA_TYPE, INT64, FLOAT, CONV_MODE, HEUR_MODE = 1, 3, 4, 7, 8
NUMERIC, DESCRIPTOR, BEHAVIOR, INT32, CHAR = 11, 15, 19, 23, 24
CTYPES = {INT64: ctypes.c_int64, FLOAT: ctypes.c_float, DESCRIPTOR: ctypes.c_void_p}
MODES = {"A": 3, "B": 1, "INSTANT": 0, "FALLBACK": 2}
PASSES = {
    # Kind of the operation; its attributes conv_desc, x or dx, w or dw, y or dy, alpha, beta.
    "forward": (10, 702, 704, 703, 705, 700, 701),
    "data": (12, 708, 710, 709, 711, 706, 707),
    "filter": (11, 714, 716, 715, 717, 712, 713),
}
PRECISIONS = {"f32-nchw": (0, False), "f32-nhwc": (0, True), "bf16-nchw": (9, False), "bf16-nhwc": (9, True)}

# Class, batch, channels, image, filters, window, stride, padding, dilation, groups
CONVOLUTIONS = [
    ("plain", 32, 256, (14, 14), 1024, (1, 1), 1, (0, 0), 1, 1),
    ("plain", 32, 64, (56, 56), 256, (1, 1), 1, (0, 0), 1, 1),
    ("plain", 32, 2048, (7, 7), 512, (1, 1), 1, (0, 0), 1, 1),
    ("plain", 4, 16, (8, 8), 32, (1, 1), 1, (0, 0), 1, 1),
    ("strided", 32, 256, (56, 56), 512, (1, 1), 2, (0, 0), 1, 1),
    ("strided", 8, 16, (8, 8), 32, (1, 1), 2, (0, 0), 1, 1),
    ("plain", 32, 64, (56, 56), 64, (3, 3), 1, (1, 1), 1, 1),
    ("plain", 32, 256, (14, 14), 256, (3, 3), 1, (1, 1), 1, 1),
    ("plain", 32, 512, (7, 7), 512, (3, 3), 1, (1, 1), 1, 1),
    ("plain", 128, 512, (2, 2), 512, (3, 3), 1, (1, 1), 1, 1),
    ("plain", 128, 64, (32, 32), 128, (3, 3), 1, (1, 1), 1, 1),
    ("plain", 8, 16, (16, 16), 16, (3, 3), 1, (1, 1), 1, 1),
    ("plain", 32, 512, (28, 28), 512, (3, 3), 1, (1, 1), 1, 1),
    ("plain", 128, 3, (32, 32), 64, (3, 3), 1, (1, 1), 1, 1),
    ("plain", 32, 3, (224, 224), 64, (3, 3), 1, (1, 1), 1, 1),
    ("plain", 8, 1, (8, 8), 16, (3, 3), 1, (1, 1), 1, 1),
    ("strided", 32, 64, (56, 56), 128, (3, 3), 2, (1, 1), 1, 1),
    ("strided", 32, 256, (14, 14), 512, (3, 3), 2, (1, 1), 1, 1),
    ("strided", 32, 288, (35, 35), 384, (3, 3), 2, (0, 0), 1, 1),
    ("strided", 32, 3, (299, 299), 32, (3, 3), 2, (0, 0), 1, 1),
    ("strided", 8, 16, (16, 16), 32, (3, 3), 2, (1, 1), 1, 1),
    ("dilated", 8, 64, (28, 28), 64, (3, 3), 1, (2, 2), 2, 1),
    ("plain", 32, 48, (35, 35), 64, (5, 5), 1, (2, 2), 1, 1),
    ("plain", 32, 64, (27, 27), 192, (5, 5), 1, (2, 2), 1, 1),
    ("patches", 32, 3, (224, 224), 64, (7, 7), 2, (3, 3), 1, 1),
    ("patches", 32, 3, (224, 224), 64, (11, 11), 4, (2, 2), 1, 1),
    ("patches", 32, 3, (224, 224), 768, (16, 16), 16, (0, 0), 1, 1),
    ("rectangular", 32, 192, (17, 17), 192, (1, 7), 1, (0, 3), 1, 1),
    ("rectangular", 32, 192, (17, 17), 192, (7, 1), 1, (3, 0), 1, 1),
    ("groups", 32, 128, (56, 56), 128, (3, 3), 1, (1, 1), 1, 32),
    ("groups", 8, 32, (16, 16), 32, (3, 3), 1, (1, 1), 1, 4),
    ("strided groups", 32, 256, (56, 56), 256, (3, 3), 2, (1, 1), 1, 32),
    ("depthwise", 32, 144, (56, 56), 144, (3, 3), 1, (1, 1), 1, 144),
    ("depthwise", 8, 16, (16, 16), 16, (3, 3), 1, (1, 1), 1, 16),
    ("strided depthwise", 32, 144, (56, 56), 144, (3, 3), 2, (1, 1), 1, 144),
]


class Cudnn:
    """The functions of cuDNN's backend that descriptors need."""

    def __init__(self, folder):
        cuda = Path(folder, "cu13/lib")
        for name in ("libcublasLt.so.13", "libnvrtc.so.13"):
            ctypes.CDLL(str(cuda / name), ctypes.RTLD_GLOBAL)
        self.library = ctypes.CDLL(str(Path(folder, "cudnn/lib/libcudnn.so.9")), ctypes.RTLD_GLOBAL)

    def create(self, kind):
        descriptor = ctypes.c_void_p()
        status = self.library.cudnnBackendCreateDescriptor(kind, ctypes.byref(descriptor))
        assert status == 0, (kind, status)
        return descriptor.value

    def set(self, descriptor, name, kind, values):
        if kind == CHAR:
            array, count = ctypes.create_string_buffer(values), len(values) + 1
        else:
            array, count = (CTYPES.get(kind, ctypes.c_int32) * len(values))(*values), len(values)
        return self.library.cudnnBackendSetAttribute(
            ctypes.c_void_p(descriptor), name, kind, ctypes.c_int64(count), array
        )

    def get(self, descriptor, name, kind, room, array=None):
        array = array or (CTYPES.get(kind, ctypes.c_int32) * max(room, 1))()
        count = ctypes.c_int64()
        status = self.library.cudnnBackendGetAttribute(
            ctypes.c_void_p(descriptor), name, kind, ctypes.c_int64(room), ctypes.byref(count), array
        )
        return status, list(array)[: count.value]

    def finalize(self, descriptor):
        return self.library.cudnnBackendFinalize(ctypes.c_void_p(descriptor))

    def made(self, kind, *attributes):
        """Returns a finalised descriptor with attributes (name, type, values)."""
        descriptor = self.create(kind)
        for attribute in attributes:
            status = self.set(descriptor, *attribute)
            assert status == 0, (kind, attribute, status)
        status = self.finalize(descriptor)
        assert status == 0, (kind, attributes, status)
        return descriptor

    def tensor(self, number, data_type, dimensions, channels_last):
        n, c, h, w = dimensions
        strides = [h * w * c, 1, w * c, c] if channels_last else [c * h * w, h * w, w, 1]
        return self.made(
            TENSOR,
            (901, DATA_TYPE, [data_type]),
            (902, INT64, dimensions),
            (903, INT64, strides),
            (906, INT64, [number]),
            (900, INT64, [16]),
        )

    def graph(self, convolution, which, precision):
        """Returns the operation graph of one pass of a convolution."""
        batch, channels, image, filters, window, stride, padding, dilation, groups = convolution
        data_type, channels_last = PRECISIONS[precision]
        out = [
            (size + 2 * pad - dilation * (side - 1) - 1) // stride + 1
            for size, side, pad in zip(image, window, padding)
        ]
        shapes = [batch, channels, *image], [filters, channels // groups, *window], [batch, filters, *out]
        tensors = [self.tensor(index, data_type, shape, channels_last) for index, shape in enumerate(shapes)]
        conv = self.made(
            CONVOLUTION,
            (100, DATA_TYPE, [0]),
            (101, CONV_MODE, [1]),
            (106, INT64, [2]),
            (105, INT64, padding),
            (104, INT64, padding),
            (103, INT64, [stride] * 2),
            (102, INT64, [dilation] * 2),
        )
        kind, *names, alpha, beta = PASSES[which]
        operation = self.made(
            kind,
            *((name, DESCRIPTOR, [value]) for name, value in zip(names, [conv, *tensors])),
            (alpha, FLOAT, [1.0]),
            (beta, FLOAT, [0.0]),
        )
        return self.made(GRAPH, (801, DESCRIPTOR, [operation]))

    def configurations(self, graph, device, mode, multiprocessors=None):
        """Returns the heuristic's configurations: engine, notes, workspace and status of the plan."""
        heuristic = self.create(HEURISTIC)
        self.set(heuristic, 201, DESCRIPTOR, [graph])
        self.set(heuristic, 200, HEUR_MODE, [MODES[mode]])
        self.set(heuristic, 204, DESCRIPTOR, [device])
        if multiprocessors:
            status = self.set(heuristic, 203, INT32, [multiprocessors])
            assert status == 0, status
        if self.finalize(heuristic) != 0:
            return []
        room = 200
        array = (ctypes.c_void_p * room)(*[self.create(CONFIG) for _ in range(room)])
        status, configurations = self.get(heuristic, 202, DESCRIPTOR, room, array)
        assert status == 0, status
        return [self.described(configuration, device) for configuration in configurations]

    def described(self, configuration, device):
        engines = (ctypes.c_void_p * 1)(self.create(ENGINE))
        status, (engine,) = self.get(configuration, 300, DESCRIPTOR, 1, engines)
        assert status == 0, status
        _, (index,) = self.get(engine, 1301, INT64, 1)
        _, notes = self.get(engine, 1303, NUMERIC, 20)
        _, behaviors = self.get(engine, 1305, BEHAVIOR, 20)
        plan = self.create(PLAN)
        self.set(plan, 401, DESCRIPTOR, [configuration])
        self.set(plan, 407, DESCRIPTOR, [device])
        # Engines that are compiled at run time take seconds each.
        status = "unknown" if 0 in behaviors else self.finalize(plan)
        workspace = self.get(plan, 402, INT64, 1)[1][0] if status == 0 else -1
        return index, sorted(notes), sorted(behaviors), workspace, status


def record(folder):
    cudnn = Cudnn(folder)
    device = cudnn.made(DEVICE, (2702, CHAR, json.dumps(H100).encode()))
    for kind, *convolution in CONVOLUTIONS:
        for which in PASSES:
            for precision in PRECISIONS:
                graph = cudnn.graph(convolution, which, precision)
                for mode in MODES:
                    limited = {entry[0] for entry in cudnn.configurations(graph, device, mode, 16)}
                    for rank, (engine, *columns) in enumerate(cudnn.configurations(graph, device, mode)):
                        case = [kind, convolution, which, precision, mode, rank, engine]
                        print(*case, *columns, engine in limited, sep="\t")


CLASSES = [
    "plain", "strided", "patches", "rectangular", "dilated", "groups", "strided groups", "depthwise",
    "strided depthwise",
]


def sizes(convolution, precision):
    """Returns the sizes of input, filter and output in bytes."""
    batch, channels, image, filters, window, stride, padding, dilation, groups = convolution
    bytes_each = 4 if precision.startswith("f32") else 2
    out = [
        (size + 2 * pad - dilation * (side - 1) - 1) // stride + 1
        for size, side, pad in zip(image, window, padding)
    ]
    counts = [
        batch * channels * image[0] * image[1],
        filters * channels // groups * window[0] * window[1],
        batch * filters * out[0] * out[1],
    ]
    return [count * bytes_each for count in counts]


def table(path):
    recorded = collections.defaultdict(set)
    proposed = collections.defaultdict(lambda: collections.defaultdict(set))
    ranks, workspaces = collections.defaultdict(list), collections.defaultdict(list)
    notes, limited = {}, set()
    for line in open(path):
        kind, shape, which, precision, mode, rank, engine, *columns = line.rstrip("\n").split("\t")
        numeric, _, workspace, status, few = columns
        assert status == "0", line
        element, layout = precision.split("-")
        key = which, element, int(engine)
        recorded[kind].add(shape)
        proposed[key][kind, mode].add(shape)
        if mode == "A":
            ranks[key].append(int(rank))
        convolution = ast.literal_eval(shape)
        # Tensors with few channels are padded, which the fit ignores.
        if convolution[-1] == 1 and convolution[1] >= 8:
            workspaces[key, layout].append((int(workspace), sizes(convolution, precision)))
        notes[key] = ast.literal_eval(numeric)
        if few == "True":
            limited.add(key)

    def multiples(key, layout):
        cases = workspaces[key, layout]
        if not cases:
            return (0, 0, 0)

        def error(factors):
            errors = [
                abs(workspace - sum(a * b for a, b in zip(factors, parts))) / sum(parts)
                for workspace, parts in cases
            ]
            return statistics.median(errors), sum(factors)

        return min(itertools.product(range(3), repeat=3), key=error)

    def classes(key, *modes):
        mask = 0
        for bit, kind in enumerate(CLASSES):
            shapes = set().union(*(proposed[key][kind, mode] for mode in modes))
            if 2 * len(shapes) >= len(recorded[kind]):
                mask |= 1 << bit
        return mask

    print("//! Engines of cuDNN 9.19 for convolutions, as recorded by `record-cudnn-engines.py`.")
    print()
    print("use super::super::convolution::Pass::{Data, Filter, Forward};")
    print("use super::{")
    print("    Element::{F32, Half},")
    print("    Engine, engine,")
    print("};")
    print()
    print("/// Engines by pass and precision, in the mean order of heuristic mode A. The columns are")
    print("/// those of [`engine`].")
    print("#[rustfmt::skip]")
    print("pub(super) const ENGINES: &[Engine] = &[")
    order = lambda key: (*key[:2], statistics.mean(ranks[key]) if ranks[key] else 1000)
    for key in sorted(proposed, key=order):
        which, element, index = key
        heuristic, fallback = classes(key, "A", "B"), classes(key, "FALLBACK")
        if not heuristic and not fallback:
            continue
        columns = [which.capitalize(), {"f32": "F32", "bf16": "Half"}[element], index]
        columns += [f"0b{heuristic:011_b}", f"0b{fallback:011_b}", f"&{notes[key]}"]
        columns += [str(key in limited).lower()]
        columns += [list(multiples(key, layout)) for layout in ("nchw", "nhwc")]
        print(f"    engine({', '.join(map(str, columns))}),")
    print("];")


if sys.argv[1] == "--table":
    table(sys.argv[2])
else:
    record(sys.argv[1])
