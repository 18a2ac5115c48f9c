//! Sums, copies and permutations of elements. Each function adds launches to a `KernelBuilder`, a
//! kernel under preparation. It fails as the functions of `KernelBuilder` do. A *sample* is one row
//! of a batch; sizes are numbers of elements.

use layer_graph::{Layer, Pad, Shape};

use super::chain::{ElementwiseChain, ElementwiseOperands};
use super::kernel::Argument;
use super::kernel_builder::{KernelBuilder, size};
use super::module::Family;
use crate::{EngineError, ImageLayout, Role, Storage};

const FAMILY: Family = Family::Elementwise;

/// Adds the launch of elementwise operations on `elements` elements.
pub(super) fn elementwise(
    builder: &mut KernelBuilder<'_>,
    elements: usize,
    operands: &ElementwiseOperands,
) -> Result<(), EngineError> {
    let sizes = [size(elements), Argument::U32(operands.rectifies.into())];
    let arguments: Vec<_> = sizes.into_iter().chain(operands.arguments()).collect();
    builder.for_each((FAMILY, "sum_terms"), elements, arguments)
}

/// Adds the launch that sums up to four terms.
fn sum_terms(
    builder: &mut KernelBuilder<'_>,
    elements: usize,
    terms: impl IntoIterator<Item = Argument>,
    to: Argument,
) -> Result<(), EngineError> {
    let (terms, targets) = (terms.into_iter().collect(), vec![to]);
    let operands = ElementwiseOperands { terms, rectifies: false, gate: Argument::NONE, targets };
    elementwise(builder, elements, &operands)
}

/// Adds the launches that sum `terms` terms of `elements` elements each, in order. `read` is where
/// each of them is read. Sums are rounded to the number format of the result once.
pub(super) fn sum(
    builder: &mut KernelBuilder<'_>,
    terms: usize,
    elements: usize,
    read: impl Fn(usize) -> Argument,
) -> Result<(), EngineError> {
    const MAX: usize = ElementwiseChain::MAX_OPERANDS;
    let to = Argument::Write(0, 0);
    if terms <= MAX {
        return sum_terms(builder, elements, (0..terms).map(&read), to);
    }
    // Partial sums, in single precision.
    let partial = match builder.storage(to) {
        Storage::Scalar => to,
        Storage::Bf16 => builder.workspace(elements * size_of::<f32>())?,
    };
    for first in (0..terms).step_by(MAX) {
        let before = if first == 0 { Argument::NONE } else { partial };
        let to = if first + MAX >= terms { to } else { Argument::NONE };
        let added = (first..first + MAX).map(|term| if term < terms { read(term) } else { Argument::NONE });
        let arguments: Vec<_> =
            [size(elements), before].into_iter().chain(added).chain([partial, to]).collect();
        builder.for_each((FAMILY, "add_terms"), elements, arguments)?;
    }
    Ok(())
}

/// Adds the launch that adds the operand that is read, of `elements` elements, to the one that is
/// written.
pub(super) fn add_in_place(builder: &mut KernelBuilder<'_>, elements: usize) -> Result<(), EngineError> {
    let (sum, term) = (Argument::Write(0, 0), Argument::Read(0, 0));
    sum_terms(builder, elements, [sum, term], sum)
}

/// Adds the launches that scale consecutive ranges of samples in place. `sample_elements` is the
/// number of elements of a sample; `factors` has the number of samples and the factor of each
/// range. A factor of 0 writes zeros.
pub(super) fn scale(
    builder: &mut KernelBuilder<'_>,
    sample_elements: usize,
    factors: &[(usize, f64)],
) -> Result<(), EngineError> {
    let mut start = 0;
    for &(samples, factor) in factors {
        let (elements, at) = (samples * sample_elements, Argument::Write(0, start));
        if factor == 0.0 {
            builder.for_each((FAMILY, "fill_zeros"), elements, [size(elements), at])?;
        } else {
            let arguments = [size(elements), Argument::F32(factor as f32), at];
            builder.for_each((FAMILY, "scale"), elements, arguments)?;
        }
        start += elements;
    }
    Ok(())
}

/// Adds the launches that copy the operand that is read to each of the `count` operands that are
/// written, of `elements` elements each.
pub(super) fn copies(
    builder: &mut KernelBuilder<'_>,
    count: usize,
    elements: usize,
) -> Result<(), EngineError> {
    (0..count).try_for_each(|operand| {
        let row = StridedRows { operand: Argument::Read(0, 0), stride: elements };
        copy_rows(builder, [1, elements], row, StridedRows { operand: Argument::Write(operand, 0), ..row })
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

/// Adds the launch that copies `rows` rows of `elements` elements.
pub(super) fn copy_rows(
    builder: &mut KernelBuilder<'_>,
    [rows, elements]: [usize; 2],
    from: StridedRows,
    to: StridedRows,
) -> Result<(), EngineError> {
    let sizes = [size(rows), size(elements), size(from.stride), size(to.stride)];
    let arguments = [&sizes[..], &[from.operand, to.operand]].concat();
    builder.for_each((FAMILY, "copy_rows"), rows * elements, arguments)
}

/// Adds the launches that concatenate the operands that are read, sample by sample. `parts` has the
/// number of elements per sample of each operand.
pub(super) fn concatenate(
    builder: &mut KernelBuilder<'_>,
    samples: usize,
    parts: &[usize],
) -> Result<(), EngineError> {
    let (whole, mut start) = (parts.iter().sum(), 0);
    for (operand, &part) in parts.iter().enumerate() {
        let to = StridedRows { operand: Argument::Write(0, start), stride: whole };
        copy_rows(
            builder,
            [samples, part],
            StridedRows { operand: Argument::Read(operand, 0), stride: part },
            to,
        )?;
        start += part;
    }
    Ok(())
}

/// Adds the launches of the inverse of [`concatenate`]: copies part `i` of each sample to the
/// operand `i` that is written.
pub(super) fn split(
    builder: &mut KernelBuilder<'_>,
    samples: usize,
    parts: &[usize],
) -> Result<(), EngineError> {
    let (whole, mut start) = (parts.iter().sum(), 0);
    for (operand, &part) in parts.iter().enumerate() {
        let from = StridedRows { operand: Argument::Read(0, start), stride: whole };
        copy_rows(
            builder,
            [samples, part],
            from,
            StridedRows { operand: Argument::Write(operand, 0), stride: part },
        )?;
        start += part;
    }
    Ok(())
}

/// Adds the launches that select one part of each of `samples` samples, or those of the backward
/// pass, which writes zeros outside of the part. `whole` is the number of elements of a sample,
/// `part` that of the part, and `start` the index of its first element.
pub(super) fn select(
    builder: &mut KernelBuilder<'_>,
    [whole, part, start]: [usize; 3],
    samples: usize,
    backward: bool,
) -> Result<(), EngineError> {
    let [outer, inner] = [whole, part].map(|stride| move |operand| StridedRows { operand, stride });
    let (read, write) = (Argument::Read(0, 0), Argument::Write(0, 0));
    if backward {
        builder.write_zeros(Role::Statistics)?;
        return copy_rows(builder, [samples, part], inner(read), outer(write.offset(start)));
    }
    copy_rows(builder, [samples, part], outer(read.offset(start)), inner(write))
}

/// Adds the launch of a pass of a padding of images. Returns `None` if the layer's shapes are not
/// images.
pub(super) fn pad(
    builder: &mut KernelBuilder<'_>,
    layer: &Layer,
    pad: &Pad,
    samples: usize,
    backward: bool,
) -> Result<Option<()>, EngineError> {
    let images = (layer.input_shapes().first().and_then(Shape::as_image), layer.output_shape().as_image());
    let (Some((channels, height, width)), Some((_, padded_height, padded_width))) = images else {
        return Ok(None);
    };
    let adjacent = builder.device().image_layout.adjacent_channels(layer.output_shape());
    let (image, padded) = ([height, width], [padded_height, padded_width]);
    // Place of the first pixel of the source in the result. In the backward pass it is negative, in
    // wrapping arithmetic.
    let (from, to, start) = if backward {
        (padded, image, pad.before.map(|side| (side as u32).wrapping_neg()))
    } else {
        (image, padded, pad.before.map(|side| side as u32))
    };
    let elements = samples * channels * to[0] * to[1];
    let sizes = [elements, adjacent, from[0], from[1], to[0], to[1]].map(size);
    let operands = [Argument::Read(0, 0), Argument::Write(0, 0)];
    let arguments = [&sizes[..], &start.map(Argument::U32), &operands].concat();
    builder.for_each((FAMILY, "place_images"), elements, arguments)?;
    Ok(Some(()))
}

/// Adds the launches of a pass of a concatenation of channels or features.
pub(super) fn concat_layer(
    builder: &mut KernelBuilder<'_>,
    layer: &Layer,
    samples: usize,
    backward: bool,
) -> Result<(), EngineError> {
    // Each position of a sequence is a row and, with channels last, each pixel of an image.
    let rows = match (builder.device().image_layout, layer.output_shape().dims()) {
        (_, &[positions, _]) => positions,
        (ImageLayout::ChannelsLast, &[_, height, width]) => height * width,
        _ => 1,
    };
    let parts: Vec<usize> = layer.input_shapes().iter().map(|shape| shape.elements() / rows).collect();
    let rows = samples * rows;
    if backward { split(builder, rows, &parts) } else { concatenate(builder, rows, &parts) }
}

/// Adds the launch that permutes the dimensions of each sample, so that output dimension `i` is
/// input dimension `order[i]`. With `backward`, the permutation is the inverse. Returns `None` if
/// `order` does not permute the dimensions.
pub(super) fn permute(
    builder: &mut KernelBuilder<'_>,
    layer: &Layer,
    order: &[usize],
    samples: usize,
    backward: bool,
) -> Result<Option<()>, EngineError> {
    let Some(input) = layer.input_shapes().first() else { return Ok(None) };
    let Some(sources) = sources(input.dims(), order) else { return Ok(None) };
    reorder(builder, layer, &sources, samples, backward)?;
    Ok(Some(()))
}

/// Adds the launch that reorders the elements of each sample: element `i` of the output is element
/// `sources[i]` of the input, with channels first. With `backward`, the inverse.
pub(super) fn reorder(
    builder: &mut KernelBuilder<'_>,
    layer: &Layer,
    sources: &[u32],
    samples: usize,
    backward: bool,
) -> Result<(), EngineError> {
    let mut sources = in_layout(builder.device().image_layout, layer, sources);
    let is_identity = (0..).zip(&sources).all(|(place, &source)| place == source);
    if is_identity {
        return copies(builder, 1, samples * sources.len());
    }
    if backward {
        let mut inverse = vec![0; sources.len()];
        for (place, &source) in (0..).zip(&sources) {
            inverse[source as usize] = place;
        }
        sources = inverse;
    }
    let elements = sources.len();
    let table = builder.table(&sources)?;
    let arguments = [size(samples), size(elements), table, Argument::Read(0, 0), Argument::Write(0, 0)];
    builder.for_each((FAMILY, "reorder_rows"), samples * elements, arguments)
}

/// Returns, for each place in a sample's output, the place in its input. `sources` are those with
/// channels first.
fn in_layout(layout: ImageLayout, layer: &Layer, sources: &[u32]) -> Vec<u32> {
    let places: Vec<u32> = (0..sources.len() as u32).collect();
    // The place of each element of the input, and the element at each place of the output.
    let inputs = layout.restore(layer, Role::Input(0), &places);
    let outputs = layout.arrange(layer, Role::Output, &places);
    outputs.iter().map(|&output| inputs[sources[output as usize] as usize]).collect()
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
