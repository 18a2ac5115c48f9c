//! Algorithms of products, and the heuristic that selects them.

use super::{
    Attributes, CublasResult, CublasStatus, Matrix, Operands, Problem,
    attributes::{IMPLEMENTATIONS, MAX_WAVES, MAX_WORKSPACE, MIN_ALIGNMENT_A, REDUCTIONS, SEARCH_MODE},
    problem::Numerics,
};
use crate::state::LibraryError;

/// First word of a `cublasLtMatmulAlgo_t` of this library.
const MAGIC: u64 = u64::from_le_bytes(*b"cublasLt");
/// Attributes of algorithms, `CUBLASLT_ALGO_CONFIG_...`.
const ALGORITHM_ID: u32 = 0;
const ALGORITHM_TILE: u32 = 1;
const ALGORITHM_SPLITS: u32 = 2;
const ALGORITHM_REDUCTION: u32 = 3;
/// Alignment of the workspace, in bytes.
const WORKSPACE_ALIGNMENT: u64 = 256;
/// Alignment in bytes that algorithms with vector loads require of addresses, leading dimensions
/// and batch strides.
const VECTOR_BYTES: u64 = 16;
/// `CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE`: partial sums in f32 in the workspace.
const REDUCTION_IN_COMPUTE_TYPE: u64 = 2;

/// Memory layout of `cublasLtMatmulAlgo_t`: the magic number, the index of the algorithm, its
/// numerics, and zeros.
pub(crate) type AlgorithmBytes = [u64; 8];

/// Algorithm of a product. Algorithms differ in the order of their sums, hence in rounding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Algorithm {
    /// Index in [`SHAPES`].
    index: usize,
    shape: Shape,
    numerics: Numerics,
}

#[derive(Clone, Copy, Debug)]
struct Shape {
    /// Rows and columns of D that a block computes.
    tile: (usize, usize),
    /// Number of products that are summed before the sum is added to the accumulator.
    slab: usize,
    /// Number of parts of the reduced dimension whose sums are stored in the workspace and then
    /// added in order.
    splits: usize,
    /// Whether operands are loaded in vectors.
    is_vector: bool,
}

const fn shape(tile: (usize, usize), slab: usize, splits: usize, is_vector: bool) -> Shape {
    Shape { tile, slab, splits, is_vector }
}

const SHAPES: [Shape; 8] = [
    shape((128, 128), 32, 1, true),
    shape((64, 64), 16, 1, true),
    shape((64, 64), 16, 2, true),
    shape((64, 64), 16, 4, true),
    shape((64, 32), 32, 8, true),
    shape((32, 32), 8, 1, false),
    shape((32, 32), 8, 3, false),
    shape((16, 16), 8, 6, false),
];

impl Shape {
    /// Returns the `cublasLtMatmulTile_t`.
    fn tile_number(self) -> u32 {
        match self.tile {
            (16, 16) => 5,
            (32, 32) => 11,
            (64, 32) => 13,
            (64, 64) => 15,
            (128, 128) => 20,
            _ => 0,
        }
    }
}

/// Returns the index of an algorithm in [`SHAPES`], and its shape. Bytes that the heuristic did not
/// return are refused with `INVALID_VALUE`.
fn shape_of(bytes: &AlgorithmBytes) -> CublasResult<(usize, Shape)> {
    let [magic, index, _, rest @ ..] = *bytes;
    let index = index as usize;
    let shape = SHAPES.get(index).filter(|_| magic == MAGIC && rest == [0; 5]);
    let text = "the algorithm was not returned by the heuristic";
    let refused = || LibraryError::misuse(CublasStatus::INVALID_VALUE, text);
    shape.map(|&shape| (index, shape)).ok_or_else(refused)
}

/// Limits of the algorithms that a caller accepts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Maximum size of the workspace in bytes.
    workspace: u64,
    /// Minimum alignment of A, B, C and D, in bytes.
    alignment: u64,
    /// Mask of `cublasLtReductionScheme_t` for algorithms with several splits.
    reductions: u64,
    /// Maximum number of waves of blocks, or 0 without a limit.
    waves: f32,
    /// Mask of `cublasLtNumericalImplFlags_t`.
    implementations: u64,
}

impl Limits {
    /// Returns the limits of a preference. Search modes other than the default are not emulated.
    pub(crate) fn from_preference(preference: &Attributes) -> CublasResult<Self> {
        preference.only_default(SEARCH_MODE, 0)?;
        let alignments = (0..4).map(|matrix| preference.get(MIN_ALIGNMENT_A + matrix, 256));
        Ok(Self {
            workspace: preference.get(MAX_WORKSPACE, 0),
            alignment: alignments.min().unwrap_or(0),
            reductions: preference.get(REDUCTIONS, 7),
            waves: f32::from_bits(preference.get(MAX_WAVES, 0) as u32),
            implementations: preference.get(IMPLEMENTATIONS, u64::MAX),
        })
    }

    /// Returns the limits of a call without an algorithm: the given workspace in bytes, and the
    /// alignment of the operands.
    pub(crate) fn of_call(operands: &Operands, workspace: u64) -> Self {
        let Operands { a, b, c, d, .. } = *operands;
        let alignment = 1 << (a | b | c | d | 256).trailing_zeros();
        Self { workspace, alignment, reductions: 7, waves: 0.0, implementations: u64::MAX }
    }
}

impl Numerics {
    fn index(self) -> u64 {
        match self {
            Self::F32 => 0,
            Self::Tf32 => 1,
            Self::FastBf16 => 2,
            Self::Bf16 => 3,
            Self::F16 => 4,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Tf32 => "tf32",
            Self::FastBf16 => "f32_by_bf16",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }

    /// Returns the `cublasLtNumericalImplFlags_t`: the unit, f32 accumulators and the input type.
    fn implementation(self) -> u64 {
        let (unit, input) = match self {
            Self::F32 => (1, 8),
            Self::Tf32 => (2, 4),
            Self::FastBf16 | Self::Bf16 => (2, 2),
            Self::F16 => (2, 1),
        };
        unit | 2 << 8 | input << 16
    }
}

impl Algorithm {
    /// Returns the algorithms for a problem within the limits, in ascending order of their
    /// estimated times. `multiprocessors` is the number of the device.
    pub(crate) fn find(problem: &Problem, limits: &Limits, multiprocessors: usize) -> Vec<Self> {
        let all = SHAPES.into_iter().enumerate();
        let all = all.map(|(index, shape)| Self { index, shape, numerics: problem.numerics });
        let mut found: Vec<_> = all
            .filter(|algorithm| {
                algorithm.is_applicable(problem)
                    && algorithm.workspace_bytes(problem) <= limits.workspace
                    && (algorithm.shape.splits == 1 || limits.reductions & REDUCTION_IN_COMPUTE_TYPE != 0)
                    && (!algorithm.shape.is_vector || limits.alignment >= VECTOR_BYTES)
                    && (limits.waves <= 0.0 || algorithm.waves(problem, multiprocessors) <= limits.waves)
                    && algorithm.numerics.implementation() & !limits.implementations == 0
            })
            .collect();
        found.sort_by(|one, other| {
            one.estimate(problem, multiprocessors).total_cmp(&other.estimate(problem, multiprocessors))
        });
        found
    }

    /// Returns the opaque form of the algorithm.
    pub(crate) fn to_bytes(self) -> AlgorithmBytes {
        [MAGIC, self.index as u64, self.numerics.index(), 0, 0, 0, 0, 0]
    }

    /// Returns the size in bytes and the value of an attribute
    /// (`cublasLtMatmulAlgoConfigAttributes_t`) of an algorithm in its opaque form. Bytes that the
    /// heuristic did not return are refused with `INVALID_VALUE`, as are other attributes.
    pub(crate) fn attribute(bytes: &AlgorithmBytes, attribute: u32) -> CublasResult<(usize, u32)> {
        let (index, shape) = shape_of(bytes)?;
        Ok(match attribute {
            ALGORITHM_ID => (4, index as u32),
            ALGORITHM_TILE => (4, shape.tile_number()),
            ALGORITHM_SPLITS => (4, shape.splits as u32),
            ALGORITHM_REDUCTION => (4, if shape.splits > 1 { REDUCTION_IN_COMPUTE_TYPE as u32 } else { 0 }),
            // Swizzling, custom option, stages; inner shape, cluster shape, and one without a name.
            4..=6 => (4, 0),
            7 | 8 | 10 => (2, 0),
            _ => {
                let text = format!("an algorithm has no attribute {attribute}");
                return Err(LibraryError::misuse(CublasStatus::INVALID_VALUE, text));
            }
        })
    }

    /// Returns the algorithm with an opaque form, for a problem. Bytes that the heuristic did not
    /// return are refused with `INVALID_VALUE`, and an algorithm that cannot compute the problem
    /// with `NOT_SUPPORTED`.
    pub(crate) fn from_bytes(bytes: &AlgorithmBytes, problem: &Problem) -> CublasResult<Self> {
        let (index, shape) = shape_of(bytes)?;
        let algorithm = Self { index, shape, numerics: problem.numerics };
        if bytes[2] != problem.numerics.index() || !algorithm.is_applicable(problem) {
            let text = format!("the algorithm was returned for another problem than {}", problem.describe());
            return Err(LibraryError::misuse(CublasStatus::NOT_SUPPORTED, text));
        }
        Ok(algorithm)
    }

    /// Checks the workspace and the alignment of the operands. The error is `INVALID_VALUE`.
    pub(crate) fn check(
        self,
        problem: &Problem,
        operands: &Operands,
        (workspace, bytes): (u64, u64),
    ) -> CublasResult<()> {
        let refused = |text: String| Err(LibraryError::misuse(CublasStatus::INVALID_VALUE, text));
        let needed = self.workspace_bytes(problem);
        if needed > 0 && (workspace == 0 || bytes < needed) {
            return refused(format!(
                "a workspace of {bytes} bytes at {workspace:#x}, and the algorithm needs {needed}"
            ));
        }
        if workspace % WORKSPACE_ALIGNMENT != 0 {
            return refused(format!("the workspace at {workspace:#x} is not aligned to 256 bytes"));
        }
        let Operands { a, b, c, d, beta, .. } = *operands;
        let used = a | b | d | if beta == 0.0 { 0 } else { c };
        if self.shape.is_vector && used % VECTOR_BYTES != 0 {
            return refused(format!(
                "operands at {a:#x}, {b:#x}, {c:#x} and {d:#x}, which the algorithm needs aligned to 16 bytes"
            ));
        }
        Ok(())
    }

    /// Returns the name of the kernel.
    pub(crate) fn kernel_name(self) -> String {
        let Shape { tile: (rows, columns), slab, splits, .. } = self.shape;
        format!("cublaslt_{}_{rows}x{columns}x{slab}_split{splits}", self.numerics.name())
    }

    /// Returns the size of the workspace in bytes.
    pub(crate) fn workspace_bytes(self, problem: &Problem) -> u64 {
        let Matrix { rows, columns, batches, .. } = problem.d;
        match self.shape.splits {
            1 => 0,
            splits => (4 * splits * rows * columns * batches) as u64,
        }
    }

    /// Returns the number of blocks as a multiple of the number that runs at the same time.
    pub(crate) fn waves(self, problem: &Problem, multiprocessors: usize) -> f32 {
        let Shape { tile, splits, .. } = self.shape;
        let Matrix { rows, columns, batches, .. } = problem.d;
        let blocks = rows.div_ceil(tile.0) * columns.div_ceil(tile.1) * batches * splits;
        blocks as f32 / problem.used_multiprocessors(multiprocessors) as f32
    }

    /// Returns the number of products that are summed before the sum is added to the accumulator.
    pub(crate) fn slab(self) -> usize {
        self.shape.slab
    }

    /// Returns the number of parts of the reduced dimension.
    pub(crate) fn splits(self) -> usize {
        self.shape.splits
    }

    fn is_applicable(self, problem: &Problem) -> bool {
        let Shape { slab, splits, is_vector, .. } = self.shape;
        let matrices = [problem.a, problem.b, problem.c, problem.d];
        let is_aligned = |matrix: &Matrix| {
            let bytes = [matrix.leading_dimension, matrix.batch_stride]
                .map(|elements| elements as u64 * matrix.element.bytes());
            bytes.iter().all(|bytes| bytes % VECTOR_BYTES == 0)
        };
        (splits == 1 || problem.k >= splits * slab) && (!is_vector || matrices.iter().all(is_aligned))
    }

    /// Returns the estimated time, in products of one multiprocessor.
    fn estimate(self, problem: &Problem, multiprocessors: usize) -> f64 {
        let Shape { tile, splits, is_vector, .. } = self.shape;
        let waves = f64::from(self.waves(problem, multiprocessors)).ceil();
        let block = (tile.0 * tile.1 * problem.k.div_ceil(splits)) as f64;
        let sums =
            self.workspace_bytes(problem) as f64 / problem.used_multiprocessors(multiprocessors) as f64;
        waves * block * if is_vector { 1.0 } else { 2.0 } + sums
    }
}

impl Problem {
    fn used_multiprocessors(&self, multiprocessors: usize) -> usize {
        let limit = if self.multiprocessors == 0 { multiprocessors } else { self.multiprocessors };
        limit.min(multiprocessors).max(1)
    }

    fn describe(&self) -> String {
        let Matrix { rows, columns, batches, .. } = self.d;
        format!("{rows} x {columns} x {}, {batches} batches, in {}", self.k, self.numerics.name())
    }
}
