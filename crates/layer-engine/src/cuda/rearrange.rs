//! Sums, copies and permutations of elements. Each function adds launches to a plan (a kernel under
//! preparation). It fails if memory cannot be allocated or a GPU function cannot be loaded. A
//! *sample* is one row of a batch; sizes are numbers of elements.

use layer_graph::Layer;

use super::kernel::Argument;
use super::module::Family;
use super::plan::{Plan, size};
use crate::{EngineError, Role};

const FAMILY: Family = Family::Elementwise;

/// Number of terms that one launch adds.
const TERMS_PER_LAUNCH: usize = 4;

/// Plans the sum of the `terms` operands that are read, each of `elements` elements, in order.
pub(super) fn sum(plan: &mut Plan<'_>, terms: usize, elements: usize) -> Result<(), EngineError> {
    let to = Argument::Write(0, 0);
    let mut next = 0;
    while next < terms {
        // The partial sum is the first term of the next launch.
        let before = (next > 0).then_some(to);
        let end = (next + TERMS_PER_LAUNCH - usize::from(before.is_some())).min(terms);
        let given = before.into_iter().chain((next..end).map(|term| Argument::Read(term, 0)));
        let padded = given.chain(std::iter::repeat(Argument::NONE)).take(TERMS_PER_LAUNCH);
        let arguments: Vec<_> = std::iter::once(size(elements)).chain(padded).chain([to]).collect();
        plan.for_each((FAMILY, "sum_terms"), elements, arguments)?;
        next = end;
    }
    Ok(())
}

/// Plans the scaling of consecutive ranges of samples in place. `factors` has the number of samples
/// and the factor of each range; a factor of 0 writes zeros.
pub(super) fn scale(
    plan: &mut Plan<'_>,
    sample_elements: usize,
    factors: &[(usize, f64)],
) -> Result<(), EngineError> {
    let mut start = 0;
    for &(samples, factor) in factors {
        let (elements, at) = (samples * sample_elements, Argument::Write(0, start));
        if factor == 0.0 {
            plan.for_each((FAMILY, "fill_zeros"), elements, [size(elements), at])?;
        } else {
            let arguments = [size(elements), Argument::F32(factor as f32), at];
            plan.for_each((FAMILY, "scale"), elements, arguments)?;
        }
        start += elements;
    }
    Ok(())
}

/// Plans copies of the operand that is read, of `elements` elements, to each of the `count`
/// operands that are written.
pub(super) fn copies(plan: &mut Plan<'_>, count: usize, elements: usize) -> Result<(), EngineError> {
    (0..count).try_for_each(|operand| {
        let row = StridedRows { operand: Argument::Read(0, 0), stride: elements };
        copy_rows(plan, [1, elements], row, StridedRows { operand: Argument::Write(operand, 0), ..row })
    })
}

/// Equally spaced rows within an operand.
#[derive(Clone, Copy)]
pub(super) struct StridedRows {
    /// Address of the first element of the first row.
    pub(super) operand: Argument,
    /// Distance between the starts of two rows, in elements. 0 repeats the same row.
    pub(super) stride: usize,
}

/// Plans the copy of `rows` rows of `elements` elements.
pub(super) fn copy_rows(
    plan: &mut Plan<'_>,
    [rows, elements]: [usize; 2],
    from: StridedRows,
    to: StridedRows,
) -> Result<(), EngineError> {
    let sizes = [size(rows), size(elements), size(from.stride), size(to.stride)];
    let arguments = [&sizes[..], &[from.operand, to.operand]].concat();
    plan.for_each((FAMILY, "copy_rows"), rows * elements, arguments)
}

/// Plans the concatenation of the operands that are read, sample by sample. `parts` has the number
/// of elements per sample of each operand.
pub(super) fn concatenate(plan: &mut Plan<'_>, samples: usize, parts: &[usize]) -> Result<(), EngineError> {
    let (whole, mut start) = (parts.iter().sum(), 0);
    for (operand, &part) in parts.iter().enumerate() {
        let to = StridedRows { operand: Argument::Write(0, start), stride: whole };
        copy_rows(
            plan,
            [samples, part],
            StridedRows { operand: Argument::Read(operand, 0), stride: part },
            to,
        )?;
        start += part;
    }
    Ok(())
}

/// Plans the inverse of [`concatenate`]: copies part `i` of each sample to the operand `i` that is
/// written.
pub(super) fn split(plan: &mut Plan<'_>, samples: usize, parts: &[usize]) -> Result<(), EngineError> {
    let (whole, mut start) = (parts.iter().sum(), 0);
    for (operand, &part) in parts.iter().enumerate() {
        let from = StridedRows { operand: Argument::Read(0, start), stride: whole };
        copy_rows(
            plan,
            [samples, part],
            from,
            StridedRows { operand: Argument::Write(operand, 0), stride: part },
        )?;
        start += part;
    }
    Ok(())
}

/// Plans the selection of one part of each of `samples` samples, or its backward pass, which writes
/// zeros outside of the part. `whole` is the number of elements of a sample, `part` that of the
/// part, and `start` the index of its first element.
pub(super) fn select(
    plan: &mut Plan<'_>,
    [whole, part, start]: [usize; 3],
    samples: usize,
    backward: bool,
) -> Result<(), EngineError> {
    let [outer, inner] = [whole, part].map(|stride| move |operand| StridedRows { operand, stride });
    let (read, write) = (Argument::Read(0, 0), Argument::Write(0, 0));
    if backward {
        plan.write_zeros(Role::Statistics)?;
        return copy_rows(plan, [samples, part], inner(read), outer(write.offset(start)));
    }
    copy_rows(plan, [samples, part], outer(read.offset(start)), inner(write))
}

/// Plans the permutation of the dimensions of each sample, so that output dimension `i` is input
/// dimension `order[i]`; backward, the inverse. Returns `None` if `order` does not permute the
/// dimensions.
pub(super) fn permute(
    plan: &mut Plan<'_>,
    layer: &Layer,
    order: &[usize],
    samples: usize,
    backward: bool,
) -> Result<Option<()>, EngineError> {
    let Some(input) = layer.input_shapes().first() else { return Ok(None) };
    let Some(mut sources) = sources(input.dims(), order) else { return Ok(None) };
    if backward {
        let mut inverse = vec![0; sources.len()];
        for (place, &source) in sources.iter().enumerate() {
            inverse[source as usize] = place as u32;
        }
        sources = inverse;
    }
    let elements = sources.len();
    let table = plan.table(&sources)?;
    let arguments = [size(samples), size(elements), table, Argument::Read(0, 0), Argument::Write(0, 0)];
    plan.for_each((FAMILY, "reorder_rows"), samples * elements, arguments)?;
    Ok(Some(()))
}

/// Returns, for each element of the output, the index of its element of the input. Output dimension
/// `i` is input dimension `order[i]`.
fn sources(dims: &[usize], order: &[usize]) -> Option<Vec<u32>> {
    let strides: Vec<usize> = (0..dims.len()).map(|dim| dims[dim + 1..].iter().product()).collect();
    let mut sources = vec![0];
    for dim in order {
        let (&size, &stride) = (dims.get(*dim)?, strides.get(*dim)?);
        sources = sources.iter().flat_map(|start| (0..size).map(move |i| start + i * stride)).collect();
    }
    let numbers: Vec<u32> = sources.into_iter().map(|source| source as u32).collect();
    (numbers.len() == dims.iter().product::<usize>()).then_some(numbers)
}
