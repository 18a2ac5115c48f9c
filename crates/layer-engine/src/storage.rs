//! Number formats of buffers.
//!
//! With [`Precision::Bf16`], an engine computes in single precision and stores the outputs of
//! layers, their gradients, and the parameters that layers read in 16 bits. Each result is rounded
//! once, to the nearest number, when it is stored; the output of a convolution by cuDNN is rounded
//! before and after its bias is added. Gradients of parameters, statistics, sums over samples,
//! saved values, labels, tokens and losses remain in single precision, but cuDNN's gradients of
//! weights are rounded to 16 bits.

use std::borrow::Cow;

use half::bf16;
use layer_graph::{Layer, LayerKind};

#[cfg(feature = "cpu")]
use crate::Sgd;
use crate::{Precision, Role};

/// Number format of the elements of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Storage {
    /// One element in each scalar of the engine.
    Scalar,
    /// Two elements of 16 bits (`bfloat16`) in each scalar of 32 bits: element `2 i` in the low
    /// half of scalar `i`, element `2 i + 1` in the high half. If the number of elements is odd,
    /// the high half of the last scalar is no element: [`pack`](Self::pack) writes zero there, and
    /// it is unspecified in what a GPU wrote.
    Bf16,
}

impl Storage {
    /// Returns the number of scalars that hold `elements` elements.
    #[must_use]
    pub fn scalars(self, elements: usize) -> usize {
        match self {
            Self::Scalar => elements,
            Self::Bf16 => elements.div_ceil(2),
        }
    }
}

impl Storage {
    /// Returns the scalars that hold `values`. Rounds to the nearest number of the format; of two
    /// equally near ones, to the one with an even mantissa.
    #[must_use]
    pub fn pack(self, values: &[f32]) -> Cow<'_, [f32]> {
        match self {
            Self::Scalar => Cow::Borrowed(values),
            Self::Bf16 => {
                let mut scalars = vec![0.0; self.scalars(values.len())];
                pack_pairs(values, &mut scalars);
                Cow::Owned(scalars)
            }
        }
    }

    /// Returns the first `elements` elements of `scalars`, or all if `scalars` has fewer.
    #[must_use]
    pub fn unpack(self, scalars: &[f32], elements: usize) -> Cow<'_, [f32]> {
        match self {
            Self::Scalar => Cow::Borrowed(&scalars[..elements.min(scalars.len())]),
            Self::Bf16 => {
                let mut values = vec![0.0; elements.min(2 * scalars.len())];
                unpack_pairs(scalars, &mut values);
                Cow::Owned(values)
            }
        }
    }
}

/// Rounds `values` to 16 bits and stores them as pairs, as [`Storage::Bf16`] defines.
pub(crate) fn pack_pairs(values: &[f32], scalars: &mut [f32]) {
    let half = |value: &f32| u32::from(bf16::from_f32(*value).to_bits());
    for (scalar, pair) in scalars.iter_mut().zip(values.chunks(2)) {
        *scalar = f32::from_bits(half(&pair[0]) | pair.get(1).map_or(0, half) << 16);
    }
}

/// Fills `values` with the elements of pairs, as [`Storage::Bf16`] defines.
pub(crate) fn unpack_pairs(scalars: &[f32], values: &mut [f32]) {
    for (scalar, pair) in scalars.iter().zip(values.chunks_mut(2)) {
        let bits = scalar.to_bits();
        for (value, bits) in pair.iter_mut().zip([bits as u16, (bits >> 16) as u16]) {
            *value = bf16::from_bits(bits).to_f32();
        }
    }
}

impl Role {
    /// Returns the number format of the buffer of this role in a precision.
    ///
    /// The input of an embedding is tokens and the output of a loss layer is the loss of each
    /// sample: both and their gradients have one element in each scalar in every precision.
    #[must_use]
    pub fn storage(self, layer: &Layer, precision: Precision) -> Storage {
        if precision != Precision::Bf16 {
            return Storage::Scalar;
        }
        match self {
            Self::Input(_) | Self::InputGradient(_) if matches!(layer.kind(), LayerKind::Embedding(_)) => {
                Storage::Scalar
            }
            Self::Output | Self::OutputGradient if layer.kind().is_loss() => Storage::Scalar,
            Self::Input(_)
            | Self::InputGradient(_)
            | Self::Output
            | Self::OutputGradient
            | Self::Parameters => Storage::Bf16,
            Self::Labels
            | Self::Statistics
            | Self::Saved
            | Self::Moments
            | Self::GradientMoments
            | Self::Metrics
            | Self::ParameterGradient => Storage::Scalar,
        }
    }
}

// All engines need it, and their features enable `cpu`.
#[cfg(feature = "cpu")]
impl Sgd {
    /// Returns the number of scalars of each operand of the kernel, those that are read first.
    /// `elements` is the number of parameters of each layer.
    pub(crate) fn operands(&self, elements: &[usize], precision: Precision) -> [Vec<usize>; 2] {
        let reads = elements.iter().copied().chain(self.clip_norm.map(|_| 1));
        let writes = elements.iter().flat_map(|&elements| match precision {
            Precision::Bf16 => vec![Storage::Bf16.scalars(elements), elements, elements],
            _ => vec![elements; 2],
        });
        [reads.collect(), writes.collect()]
    }
}

#[cfg(test)]
mod tests {
    use half::bf16;
    use layer_graph::zoo;
    use proptest::prelude::*;

    use super::*;

    /// Returns the bits of each number, so that NaN and the signs of zeros are compared.
    fn bits(values: &[f32]) -> Vec<u32> {
        values.iter().map(|value| value.to_bits()).collect()
    }

    proptest! {
        #[test]
        fn unpack_returns_packed_values_rounded_by_half(
            words in prop::collection::vec(any::<u32>(), 0..40)
        ) {
            let values: Vec<f32> = words.into_iter().map(f32::from_bits).collect();
            let expected: Vec<f32> = values.iter().map(|&value| bf16::from_f32(value).to_f32()).collect();
            let packed = Storage::Bf16.pack(&values);
            prop_assert_eq!(packed.len(), Storage::Bf16.scalars(values.len()));
            let unpacked = Storage::Bf16.unpack(&packed, values.len());
            prop_assert_eq!(bits(&unpacked), bits(&expected));
            let repacked = Storage::Bf16.pack(&unpacked);
            prop_assert_eq!(bits(&repacked), bits(&packed));
            prop_assert_eq!(bits(&Storage::Scalar.pack(&values)), bits(&values));
        }

        #[test]
        fn packed_bytes_are_contiguous_little_endian_numbers(
            values in prop::collection::vec(-1e30f32..1e30, 0..40)
        ) {
            let halves = values.iter().flat_map(|&value| bf16::from_f32(value).to_le_bytes());
            let mut expected: Vec<u8> = halves.collect();
            expected.resize(values.len().div_ceil(2) * 4, 0);
            let packed = Storage::Bf16.pack(&values);
            let bytes: Vec<u8> = packed.iter().flat_map(|scalar| scalar.to_le_bytes()).collect();
            prop_assert_eq!(bytes, expected);
        }
    }

    #[test]
    fn ties_round_to_the_even_mantissa() {
        // Between 1 and 1 + 2^-7, and between 1 + 2^-7 and 1 + 2^-6.
        let values = [1.0 + 0.5_f32.powi(8), 1.0 + 3.0 * 0.5_f32.powi(8)];
        let packed = Storage::Bf16.pack(&values);
        assert_eq!(Storage::Bf16.unpack(&packed, 2).as_ref(), [1.0, 1.0 + 0.5_f32.powi(6)]);
    }

    #[test]
    fn only_activations_their_gradients_and_parameters_have_16_bits() {
        let graph = zoo::model("digits-cnn").unwrap();
        let find = |is: fn(&Layer) -> bool| graph.layers().map(|(_, layer)| layer).find(|layer| is(layer));
        let loss = find(|layer| layer.kind().is_loss()).unwrap();
        let linear = find(|layer| layer.parameter_count() > 0).unwrap();
        let storage = |role: Role, layer: &Layer| role.storage(layer, Precision::Bf16);
        for role in [Role::Input(0), Role::InputGradient(0), Role::Output, Role::OutputGradient] {
            assert_eq!(storage(role, linear), Storage::Bf16, "{role:?}");
            assert_eq!(role.storage(linear, Precision::F32), Storage::Scalar, "{role:?}");
        }
        assert_eq!(storage(Role::Parameters, linear), Storage::Bf16);
        assert_eq!(storage(Role::ParameterGradient, linear), Storage::Scalar);
        assert_eq!(storage(Role::Input(0), loss), Storage::Bf16);
        for role in [Role::Output, Role::OutputGradient, Role::Labels, Role::Metrics, Role::Saved] {
            assert_eq!(storage(role, loss), Storage::Scalar, "{role:?}");
        }
    }
}
