//! Algorithms for one shape of a product.

use std::ffi::c_void;
use std::fmt::{self, Write};
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::cublaslt::sys::{
    self, cublasComputeType_t, cublasLtEpilogue_t, cublasLtMatmulAlgo_t,
    cublasLtMatmulAlgoConfigAttributes_t, cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t,
    cublasLtMatmulHeuristicResult_t, cublasLtMatmulPreferenceAttributes_t, cublasLtMatrixLayout_t,
    cublasLtReductionScheme_t, cublasStatus_t, cudaDataType,
};

use super::descriptor::Descriptor;
use super::{CublasLt, CublasLtFunctions, Handle, lt};
use crate::driver::written;
use crate::memory::{check_not_captured_elsewhere, keep_while_captured};
use crate::numerics::{ALIGNMENT, check_address, positive, use_workspace};
use crate::symbols::{Code, call};
use crate::{Address, Buffer, Context, Error, Numerics, Result, Stream};

/// Shape of the product D = op(A) op(B) of row-major, adjacent matrices, where D is `rows` x
/// `columns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(clippy::struct_excessive_bools, reason = "independent properties of a product")]
pub struct ProductShape {
    /// Number of rows of D and op(A).
    pub rows: usize,
    /// Number of columns of D and op(B).
    pub columns: usize,
    /// Number of columns of op(A) and rows of op(B), over which the sums run.
    pub depth: usize,
    /// Whether op(A) is the transpose of A, so that A is `depth` x `rows`.
    pub a_transposed: bool,
    /// Whether op(B) is the transpose of B, so that B is `columns` x `depth`.
    pub b_transposed: bool,
    /// Number of products. The matrices of each operand are adjacent.
    pub batch: usize,
    /// Whether a vector of `columns` elements is added to each row of D.
    pub bias: bool,
    /// Whether D and the bias are f32 if A and B are bf16.
    pub single: bool,
}

impl ProductShape {
    /// Checks that the library's types have the sizes: dimensions and the batch are at most 2^31-1,
    /// and each operand has fewer than 2^63 bytes.
    fn check(&self, numerics: Numerics) -> Result<()> {
        let Self { rows, columns, depth, batch, .. } = *self;
        for (name, size) in [("rows", rows), ("columns", columns), ("depth", depth), ("batch", batch)] {
            positive::<i32>(&format!("a product with {name}"), size)?;
        }
        let element_bytes = if self.single { 4 } else { numerics.element_bytes() };
        for sides in [[rows, depth], [depth, columns], [rows, columns]] {
            let factors = [sides[0], sides[1], batch, element_bytes];
            let bytes = factors.iter().try_fold(1, |product: usize, factor| product.checked_mul(*factor));
            if bytes.is_none_or(|bytes| i64::try_from(bytes).is_err()) {
                return Err(Error::Invalid(format!(
                    "{batch} matrices of {} x {} elements exceed any memory",
                    sides[0], sides[1]
                )));
            }
        }
        Ok(())
    }
}

/// Product of matrices by one algorithm of cuBLASLt, created by [`CublasLt::products`]. It holds a
/// reference to the device's context. A clone shares its descriptors.
#[derive(Clone)]
pub struct Product {
    problem: Arc<Problem>,
    algorithm: cublasLtMatmulAlgo_t,
    workspace_bytes: usize,
    /// Position among the library's proposals, from 0.
    rank: usize,
}

/// Descriptors of a product. cuBLASLt stores matrices by columns: it computes the transpose of D as
/// the product of the transposes of B and A, which have the same elements in memory.
struct Problem {
    shape: ProductShape,
    /// Changed for each bias.
    operation: Mutex<Descriptor<cublasLtMatmulDesc_t>>,
    a: Descriptor<cublasLtMatrixLayout_t>,
    b: Descriptor<cublasLtMatrixLayout_t>,
    d: Descriptor<cublasLtMatrixLayout_t>,
}

impl CublasLt {
    /// Returns the algorithms that cuBLASLt proposes for a product on the device, at most
    /// `at_most`, the expectedly fastest first. Each needs a workspace of at most `workspace_limit`
    /// bytes, and adds partial sums in single precision. The list is empty if the library has none.
    /// The results of all are deterministic. Do not call this while a stream is being captured.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a size that is zero or too large; [`Error::Library`].
    pub fn products(
        &self,
        context: &Context,
        shape: &ProductShape,
        numerics: Numerics,
        workspace_limit: usize,
        at_most: usize,
    ) -> Result<Vec<Product>> {
        shape.check(numerics)?;
        let handle = self.handle(context)?;
        let problem = Problem::new(&handle, shape, numerics)?;
        let results = problem.heuristic(&handle, workspace_limit, at_most)?;
        let problem = Arc::new(problem);
        let products = results.into_iter().enumerate().map(|(rank, (algorithm, workspace_bytes))| Product {
            problem: Arc::clone(&problem),
            algorithm,
            workspace_bytes,
            rank,
        });
        Ok(products.filter(|product| product.workspace_bytes <= workspace_limit).collect())
    }
}

impl Problem {
    fn new(handle: &Arc<Handle>, shape: &ProductShape, numerics: Numerics) -> Result<Self> {
        use cublasComputeType_t as Compute;
        use cublasLtMatmulDescAttributes_t as Attribute;
        let (compute, element) = match numerics {
            Numerics::F32 => (Compute::CUBLAS_COMPUTE_32F, cudaDataType::CUDA_R_32F),
            Numerics::Tf32 => (Compute::CUBLAS_COMPUTE_32F_FAST_TF32, cudaDataType::CUDA_R_32F),
            Numerics::Bf16 => (Compute::CUBLAS_COMPUTE_32F, cudaDataType::CUDA_R_16BF),
        };
        let operation = Descriptor::operation(handle, compute)?;
        // `CUBLAS_OP_T` is 1 and `CUBLAS_OP_N` is 0.
        let [transposed_a, transposed_b] = [shape.a_transposed, shape.b_transposed].map(i32::from);
        // The library's A is B.
        operation.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, &transposed_b)?;
        operation.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSB, &transposed_a)?;
        if shape.bias {
            let epilogue = cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS as u32;
            operation.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue)?;
            // The search for algorithms considers the alignment, and does not read the elements.
            operation.set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &ALIGNMENT)?;
        }
        let sides = |transposed, rows, columns| if transposed { [columns, rows] } else { [rows, columns] };
        let ProductShape { rows, columns, depth, batch, .. } = *shape;
        let layout =
            |element, [rows, columns]: [usize; 2]| Descriptor::layout(handle, element, rows, columns, batch);
        let result = if shape.single { cudaDataType::CUDA_R_32F } else { element };
        Ok(Self {
            shape: *shape,
            operation: Mutex::new(operation),
            a: layout(element, sides(shape.a_transposed, rows, depth))?,
            b: layout(element, sides(shape.b_transposed, depth, columns))?,
            d: layout(result, [rows, columns])?,
        })
    }

    /// Returns algorithms with the sizes of their workspaces.
    fn heuristic(
        &self,
        handle: &Arc<Handle>,
        workspace_limit: usize,
        at_most: usize,
    ) -> Result<Vec<(cublasLtMatmulAlgo_t, usize)>> {
        use cublasLtMatmulPreferenceAttributes_t as Attribute;
        const NOT_SUPPORTED: Code = cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED as Code;
        const SUCCESS: Code = cublasStatus_t::CUBLAS_STATUS_SUCCESS as Code;
        if at_most == 0 {
            return Ok(Vec::new());
        }
        let preference = Descriptor::preference(handle)?;
        let limit = workspace_limit as u64;
        preference.set(Attribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit)?;
        // Partial sums are not rounded to the number format of D.
        let reductions = cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_NONE as u32
            | cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;
        preference.set(Attribute::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions)?;
        for operand in [
            Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
            Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
            Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
            Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
        ] {
            preference.set(operand, &(ALIGNMENT as u32))?;
        }
        // More than cuBLASLt has algorithms for any shape.
        let room = at_most.min(1000);
        let mut results: Vec<MaybeUninit<cublasLtMatmulHeuristicResult_t>> = Vec::new();
        results.resize_with(room, MaybeUninit::zeroed);
        let operation = self.operation.lock().unwrap_or_else(PoisonError::into_inner);
        let (operation, a, b, d) = (operation.raw, self.b.raw, self.a.raw, self.d.raw);
        let (preference, array) = (preference.raw, results.as_mut_ptr().cast());
        handle.context.bind()?;
        // SAFETY: the handle and the descriptors are alive; at most `room` results are written.
        let found = written(|found: *mut i32| unsafe {
            let (functions, room) = (&*handle.functions, (room as u32).cast_signed());
            let raw = handle.raw.0;
            lt!(
                functions,
                cublasLtMatmulAlgoGetHeuristic(raw, operation, a, b, d, d, preference, room, array, found)
            )
        });
        let found = match found {
            Err(Error::Library { code: NOT_SUPPORTED, .. }) => 0,
            found => usize::try_from(found?).unwrap_or(0).min(room),
        };
        let usable = results[..found].iter().filter_map(|result| {
            let result = result.as_ptr();
            // SAFETY: the results were zeroed, and written by the library. The state is read as an
            // integer, since cudarc's enumeration may lack it.
            unsafe {
                let state = (&raw const (*result).state).cast::<Code>().read();
                let algorithm = ((*result).algo, (*result).workspaceSize);
                (state == SUCCESS).then_some(algorithm)
            }
        });
        Ok(usable.collect())
    }
}

impl Product {
    /// Returns the size of the workspace that [`enqueue`](Self::enqueue) needs, in bytes.
    #[must_use]
    pub fn workspace_bytes(&self) -> usize {
        self.workspace_bytes
    }

    /// Returns the name of the algorithm, which identifies it among those of a shape on one version
    /// of the library: its number, and its attributes that are not zero, such as the number of its
    /// tile and stages, and the number of parts that the depth is split into.
    #[must_use]
    pub fn name(&self) -> String {
        use cublasLtMatmulAlgoConfigAttributes_t as Attribute;
        let value = |attribute, size| {
            let mut value = 0_u32;
            let functions: &CublasLtFunctions = &self.problem.a.handle.functions;
            let (algorithm, to) = (&raw const self.algorithm, (&raw mut value).cast());
            // SAFETY: the algorithm was returned by the library, and the value has four bytes, of
            // which the library writes the first `size`.
            let code = unsafe {
                let written = std::ptr::null_mut();
                call!(
                    functions,
                    sys::cublasLtMatmulAlgoConfigGetAttribute(algorithm, attribute, to, size, written)
                )
            };
            (code == Some(0)).then_some(value)
        };
        let Some(number) = value(Attribute::CUBLASLT_ALGO_CONFIG_ID, 4) else {
            return format!("cuBLASLt proposal {}", self.rank);
        };
        let mut name = format!("cuBLASLt algorithm {number}");
        // The library checks the sizes.
        for (label, attribute, size) in [
            ("tile", Attribute::CUBLASLT_ALGO_CONFIG_TILE_ID, 4),
            ("stages", Attribute::CUBLASLT_ALGO_CONFIG_STAGES_ID, 4),
            ("split", Attribute::CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4),
            ("reduction", Attribute::CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4),
            ("swizzle", Attribute::CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4),
            ("option", Attribute::CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4),
            ("inner shape", Attribute::CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2),
            ("cluster", Attribute::CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2),
        ] {
            if let Some(value @ 1..) = value(attribute, size) {
                let _ = write!(name, ", {label} {value}");
            }
        }
        name
    }

    /// Enqueues the product, with the matrices A, B and D, and the bias vector if the shape has
    /// one. Does not wait. `workspace` has at least [`workspace_bytes`](Self::workspace_bytes)
    /// bytes; its content is overwritten. All addresses are multiples of 16. A captured graph keeps
    /// the product and the buffers.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an address that is not aligned, a missing or unexpected bias, a
    /// workspace that is too small, and a stream of another device; [`Error::Library`].
    ///
    /// # Safety
    /// From their addresses on, the operands have the elements of the shape. D and the workspace
    /// overlap neither each other nor another operand.
    pub unsafe fn enqueue(
        &self,
        stream: &Stream,
        [a, b, d]: [Address<'_>; 3],
        bias: Option<Address<'_>>,
        workspace: &Buffer<u8>,
    ) -> Result<()> {
        let problem = &self.problem;
        let handle = &problem.a.handle;
        if bias.is_some() != problem.shape.bias {
            return Err(Error::Invalid(format!(
                "the product has {} bias, and {} was given",
                if problem.shape.bias { "a" } else { "no" },
                if bias.is_some() { "one" } else { "none" }
            )));
        }
        stream.context().check_same(&handle.context, "a product")?;
        check_not_captured_elsewhere(stream)?;
        let matrices = [("A", a), ("B", b), ("D", d)].into_iter();
        for (name, address) in matrices.chain(bias.map(|bias| ("the bias", bias))) {
            check_address(name, address.value())?;
            address.use_in(stream)?;
        }
        let workspace = use_workspace(workspace, self.workspace_bytes, stream)?;
        stream.context().bind()?;
        let operation = problem.operation.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bias) = bias {
            let attribute = cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_BIAS_POINTER;
            operation.set(attribute, &bias.value())?;
        }
        keep_while_captured(problem);
        let (one, zero) = (1.0_f32, 0.0_f32);
        let (one, zero): (*const c_void, *const c_void) = ((&raw const one).cast(), (&raw const zero).cast());
        let (functions, raw, operation) = (&*handle.functions, handle.raw.0, operation.raw);
        let (a_layout, b_layout, layout) = (problem.b.raw, problem.a.raw, problem.d.raw);
        let [a, b, d] = [b, a, d].map(Address::value);
        let (a, b) = (a as *const c_void, b as *const c_void);
        let (c, d, workspace) = (d as *const c_void, d as *mut c_void, workspace as *mut c_void);
        let (algorithm, bytes, queue) =
            (&raw const self.algorithm, self.workspace_bytes, stream.raw().cast());
        // SAFETY: the handle, the descriptors and the stream are alive, and the algorithm is one
        // for these descriptors. The operands are as the caller promises.
        unsafe {
            lt!(
                functions,
                cublasLtMatmul(
                    raw, operation, one, a, a_layout, b, b_layout, zero, c, layout, d, layout, algorithm,
                    workspace, bytes, queue
                )
            )
        }
    }
}

impl fmt::Debug for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {:?}", self.name(), self.problem.shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: ProductShape = ProductShape {
        rows: 2,
        columns: 3,
        depth: 4,
        a_transposed: false,
        b_transposed: true,
        batch: 1,
        bias: false,
        single: false,
    };

    #[test]
    fn zero_and_overflowing_sizes_are_one_line_errors() {
        let large = i32::MAX as usize;
        assert_eq!(SHAPE.check(Numerics::F32), Ok(()));
        assert_eq!(ProductShape { rows: large, columns: large, ..SHAPE }.check(Numerics::Bf16), Ok(()));
        for (part, shape) in [
            ("rows", ProductShape { rows: 0, ..SHAPE }),
            ("columns", ProductShape { columns: large + 1, ..SHAPE }),
            ("depth", ProductShape { depth: 0, ..SHAPE }),
            ("batch", ProductShape { batch: usize::MAX, ..SHAPE }),
            ("exceed", ProductShape { rows: large, columns: large, ..SHAPE }),
            ("exceed", ProductShape { rows: large, depth: large, batch: large, ..SHAPE }),
        ] {
            let Err(Error::Invalid(message)) = shape.check(Numerics::F32) else { panic!("{shape:?}") };
            assert!(message.contains(part) && message.lines().count() == 1, "{message}");
        }
    }
}
