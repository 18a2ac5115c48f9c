//! Attributes of descriptors. As in cuBLASLt, setting an attribute checks its code and its size;
//! its value is checked where the descriptor is used.

use super::{CublasResult, CublasStatus};
use crate::state::{LibraryError, handles::HandleKind};
use std::collections::BTreeMap;

/// Kind of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DescriptorKind {
    /// Description of a product (`cublasLtMatmulDesc_t`).
    Product,
    /// Layout of a matrix (`cublasLtMatrixLayout_t`).
    Layout,
    /// Preference of the heuristic (`cublasLtMatmulPreference_t`).
    Preference,
}

/// Attribute: its code, the size of its value in bytes and the end of its name.
type Declaration = (u32, usize, &'static str);

/// Attributes of products, `CUBLASLT_MATMUL_DESC_...`, that cuBLASLt 13.1 accepts.
const PRODUCT: [Declaration; 34] = [
    (COMPUTE_TYPE, 4, "COMPUTE_TYPE"),
    (SCALE_TYPE, 4, "SCALE_TYPE"),
    (POINTER_MODE, 4, "POINTER_MODE"),
    (TRANSPOSE_A, 4, "TRANSA"),
    (TRANSPOSE_B, 4, "TRANSB"),
    (TRANSPOSE_C, 4, "TRANSC"),
    (FILL_MODE, 4, "FILL_MODE"),
    (EPILOGUE, 4, "EPILOGUE"),
    (BIAS_POINTER, 8, "BIAS_POINTER"),
    (BIAS_BATCH_STRIDE, 8, "BIAS_BATCH_STRIDE"),
    (11, 8, "EPILOGUE_AUX_POINTER"),
    (12, 8, "EPILOGUE_AUX_LD"),
    (13, 8, "EPILOGUE_AUX_BATCH_STRIDE"),
    (14, 8, "ALPHA_VECTOR_BATCH_STRIDE"),
    (MULTIPROCESSORS, 4, "SM_COUNT_TARGET"),
    (16, 4, "16"),
    (17, 8, "A_SCALE_POINTER"),
    (18, 8, "B_SCALE_POINTER"),
    (19, 8, "C_SCALE_POINTER"),
    (20, 8, "D_SCALE_POINTER"),
    (21, 8, "AMAX_D_POINTER"),
    (22, 4, "EPILOGUE_AUX_DATA_TYPE"),
    (23, 8, "EPILOGUE_AUX_SCALE_POINTER"),
    (24, 8, "EPILOGUE_AUX_AMAX_POINTER"),
    (25, 1, "FAST_ACCUM"),
    (BIAS_TYPE, 4, "BIAS_DATA_TYPE"),
    (31, 4, "A_SCALE_MODE"),
    (32, 4, "B_SCALE_MODE"),
    (33, 4, "C_SCALE_MODE"),
    (34, 4, "D_SCALE_MODE"),
    (35, 4, "EPILOGUE_AUX_SCALE_MODE"),
    (36, 8, "D_OUT_SCALE_POINTER"),
    (37, 4, "D_OUT_SCALE_MODE"),
    (38, 8, "EMULATION_DESCRIPTOR"),
];
pub(super) const COMPUTE_TYPE: u32 = 0;
pub(super) const SCALE_TYPE: u32 = 1;
pub(super) const POINTER_MODE: u32 = 2;
pub(super) const TRANSPOSE_A: u32 = 3;
pub(super) const TRANSPOSE_B: u32 = 4;
pub(super) const TRANSPOSE_C: u32 = 5;
pub(super) const FILL_MODE: u32 = 6;
pub(super) const EPILOGUE: u32 = 7;
pub(super) const BIAS_POINTER: u32 = 8;
pub(super) const BIAS_BATCH_STRIDE: u32 = 10;
pub(super) const MULTIPROCESSORS: u32 = 15;
pub(super) const BIAS_TYPE: u32 = 26;

/// Attributes of layouts, `CUBLASLT_MATRIX_LAYOUT_...`, that cuBLASLt 13.1 accepts for layouts
/// without groups.
const LAYOUT: [Declaration; 9] = [
    (ELEMENT, 4, "TYPE"),
    (ORDER, 4, "ORDER"),
    (ROWS, 8, "ROWS"),
    (COLUMNS, 8, "COLS"),
    (LEADING_DIMENSION, 8, "LD"),
    (BATCHES, 4, "BATCH_COUNT"),
    (BATCH_STRIDE, 8, "STRIDED_BATCH_OFFSET"),
    (7, 8, "PLANE_OFFSET"),
    (8, 4, "BATCH_MODE"),
];
pub(super) const ELEMENT: u32 = 0;
pub(super) const ORDER: u32 = 1;
pub(super) const ROWS: u32 = 2;
pub(super) const COLUMNS: u32 = 3;
pub(super) const LEADING_DIMENSION: u32 = 4;
pub(super) const BATCHES: u32 = 5;
pub(super) const BATCH_STRIDE: u32 = 6;

/// Attributes of preferences, `CUBLASLT_MATMUL_PREF_...`, that cuBLASLt 13.1 accepts.
const PREFERENCE: [Declaration; 9] = [
    (SEARCH_MODE, 4, "SEARCH_MODE"),
    (MAX_WORKSPACE, 8, "MAX_WORKSPACE_BYTES"),
    (REDUCTIONS, 4, "REDUCTION_SCHEME_MASK"),
    (MIN_ALIGNMENT_A, 4, "MIN_ALIGNMENT_A_BYTES"),
    (MIN_ALIGNMENT_A + 1, 4, "MIN_ALIGNMENT_B_BYTES"),
    (MIN_ALIGNMENT_A + 2, 4, "MIN_ALIGNMENT_C_BYTES"),
    (MIN_ALIGNMENT_A + 3, 4, "MIN_ALIGNMENT_D_BYTES"),
    (MAX_WAVES, 4, "MAX_WAVES_COUNT"),
    (IMPLEMENTATIONS, 8, "IMPL_MASK"),
];
pub(super) const SEARCH_MODE: u32 = 0;
pub(super) const MAX_WORKSPACE: u32 = 1;
pub(super) const REDUCTIONS: u32 = 3;
pub(super) const MIN_ALIGNMENT_A: u32 = 5;
pub(super) const MAX_WAVES: u32 = 9;
pub(super) const IMPLEMENTATIONS: u32 = 12;

impl DescriptorKind {
    /// Returns the kind of the descriptor's handle.
    pub(crate) fn handle_kind(self) -> HandleKind {
        match self {
            Self::Product => HandleKind::ProductDescription,
            Self::Layout => HandleKind::MatrixLayout,
            Self::Preference => HandleKind::ProductPreference,
        }
    }

    fn declarations(self) -> &'static [Declaration] {
        match self {
            Self::Product => &PRODUCT,
            Self::Layout => &LAYOUT,
            Self::Preference => &PREFERENCE,
        }
    }
}

/// Attributes of a descriptor that have been set.
#[derive(Clone, Debug)]
pub(crate) struct Attributes {
    kind: DescriptorKind,
    /// Value of each attribute, in the low-order bytes.
    values: BTreeMap<u32, u64>,
}

impl Attributes {
    /// Creates the description of a product from its `cublasComputeType_t` and the `cudaDataType_t`
    /// of its scale factors.
    pub(crate) fn product(compute: u32, scale: u32) -> Self {
        let values = BTreeMap::from([(COMPUTE_TYPE, compute.into()), (SCALE_TYPE, scale.into())]);
        Self { kind: DescriptorKind::Product, values }
    }

    /// Creates the layout of a column-major matrix. `element` is a `cudaDataType_t`.
    pub(crate) fn layout(element: u32, rows: u64, columns: u64, leading_dimension: i64) -> Self {
        let values = BTreeMap::from([
            (ELEMENT, element.into()),
            (ROWS, rows),
            (COLUMNS, columns),
            (LEADING_DIMENSION, leading_dimension as u64),
        ]);
        Self { kind: DescriptorKind::Layout, values }
    }

    /// Creates a preference without workspace.
    pub(crate) fn preference() -> Self {
        Self { kind: DescriptorKind::Preference, values: BTreeMap::new() }
    }

    /// Returns the kind of the descriptor.
    pub(crate) fn kind(&self) -> DescriptorKind {
        self.kind
    }

    /// Sets an attribute to the value in the given bytes. An unknown code and a wrong size are
    /// refused with `INVALID_VALUE`.
    pub(crate) fn set(&mut self, attribute: u32, value: &[u8]) -> CublasResult<()> {
        let found = self.kind.declarations().iter().find(|(code, ..)| *code == attribute);
        let Some(&(_, bytes, name)) = found else {
            let text = format!("attribute {attribute} of {}s is unknown", self.kind.handle_kind());
            return Err(LibraryError::misuse(CublasStatus::INVALID_VALUE, text));
        };
        if value.len() != bytes {
            let text = format!("{} bytes for the attribute {name}, which has {bytes}", value.len());
            return Err(LibraryError::misuse(CublasStatus::INVALID_VALUE, text));
        }
        let mut word = [0; 8];
        word[..bytes].copy_from_slice(value);
        self.values.insert(attribute, u64::from_le_bytes(word));
        Ok(())
    }

    /// Returns the value of an attribute, or `default` if it is not set.
    pub(super) fn get(&self, attribute: u32, default: u64) -> u64 {
        self.values.get(&attribute).copied().unwrap_or(default)
    }

    /// Checks that an attribute is not set or has its default, because its other values are not
    /// emulated.
    pub(super) fn only_default(&self, attribute: u32, default: u64) -> CublasResult<()> {
        let value = self.get(attribute, default);
        if value == default {
            return Ok(());
        }
        let found = self.kind.declarations().iter().find(|(code, ..)| *code == attribute);
        let name = found.map_or("", |(.., name)| name);
        let text = format!("the value {value} of {name} is not emulated, only {default}");
        Err(LibraryError::misuse(CublasStatus::NOT_SUPPORTED, text))
    }
}
