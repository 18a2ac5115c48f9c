//! Element types of NCCL and reductions of their values.

use half::{bf16, f16};

/// Returns the size of an `ncclDataType_t` in bytes, or `None` if it is not supported. Integers of
/// 8, 32 and 64 bits and floating-point numbers of 16, 32 and 64 bits are supported.
pub(in crate::state) fn element_bytes(element: u32) -> Option<usize> {
    Some(match element {
        0 | 1 => 1,
        6 | 9 => 2,
        2 | 3 | 7 => 4,
        4 | 5 | 8 => 8,
        _ => return None,
    })
}

/// Returns whether an `ncclRedOp_t` is supported: sum, product, maximum, minimum or average.
pub(in crate::state) fn is_reduction(reduction: u32) -> bool {
    reduction < 5
}

/// Returns the element-wise reduction of the inputs of all ranks. The inputs have equal lengths and
/// are reduced in the order of the ranks. `element` is a supported `ncclDataType_t` and `reduction`
/// a supported `ncclRedOp_t`. 16-bit floating-point numbers are reduced as `f32` and rounded once.
pub(in crate::state) fn reduce(element: u32, reduction: u32, inputs: &[Vec<u8>]) -> Vec<u8> {
    macro_rules! integers {
        ($type:ty) => {
            fold::<$type, { size_of::<$type>() }>(
                reduction,
                inputs,
                <$type>::from_le_bytes,
                [<$type>::wrapping_add, <$type>::wrapping_mul, Ord::max, Ord::min],
                |sum, ranks| sum / <$type>::try_from(ranks).unwrap_or(<$type>::MAX),
                |value| value.to_le_bytes(),
            )
        };
    }
    macro_rules! floats {
        ($type:ty, $held:ty, $from:expr, $to:expr) => {
            fold::<$type, { size_of::<$held>() }>(
                reduction,
                inputs,
                $from,
                [|a, b| a + b, |a, b| a * b, <$type>::max, <$type>::min],
                |sum, ranks| sum / ranks as $type,
                $to,
            )
        };
    }
    match element {
        0 => integers!(i8),
        1 => integers!(u8),
        2 => integers!(i32),
        3 => integers!(u32),
        4 => integers!(i64),
        5 => integers!(u64),
        6 => floats!(f32, f16, |bytes| f16::from_le_bytes(bytes).to_f32(), |value| f16::from_f32(value)
            .to_le_bytes()),
        7 => floats!(f32, f32, f32::from_le_bytes, f32::to_le_bytes),
        8 => floats!(f64, f64, f64::from_le_bytes, f64::to_le_bytes),
        _ => floats!(f32, bf16, |bytes| bf16::from_le_bytes(bytes).to_f32(), |value| bf16::from_f32(value)
            .to_le_bytes()),
    }
}

fn fold<T: Copy, const BYTES: usize>(
    reduction: u32,
    inputs: &[Vec<u8>],
    from: impl Fn([u8; BYTES]) -> T,
    [sum, product, greatest, least]: [fn(T, T) -> T; 4],
    mean: impl Fn(T, usize) -> T,
    to: impl Fn(T) -> [u8; BYTES],
) -> Vec<u8> {
    let combine = [sum, product, greatest, least, sum][reduction.min(4) as usize];
    let elements = |bytes: &[u8]| -> Vec<T> {
        let numbers = bytes.chunks_exact(BYTES).filter_map(|bytes| bytes.try_into().ok());
        numbers.map(&from).collect()
    };
    let Some((first, others)) = inputs.split_first() else { return Vec::new() };
    let mut result = elements(first);
    for other in others {
        for (held, given) in result.iter_mut().zip(elements(other)) {
            *held = combine(*held, given);
        }
    }
    let ends = |value| if reduction == 4 { mean(value, inputs.len()) } else { value };
    result.into_iter().flat_map(|value| to(ends(value))).collect()
}
