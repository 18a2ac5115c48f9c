//! Exchange of small messages and sums between ranks by the collectives for gradients, whose
//! elements are in single precision.

use collectives::{Communicator, Group, ReduceOp};
use layer_engine::Engine;

use crate::Error;
use crate::runtime::{Backend, RankDevice};

/// Number of digits in base [`BASE`] by which the length of a message is sent, one per element.
const DIGITS: usize = 4;
/// Base of the digits of a length.
const BASE: usize = 1 << 8;

/// Returns the message of every rank, indexed by rank. `own` is this rank's message; lengths may
/// differ. All ranks of the communicator call it.
///
/// Each byte is sent as one element in single precision, which represents it exactly.
///
/// # Errors
/// If the engine or the communicator fails.
pub(super) fn gather<B: Backend>(
    device: &mut RankDevice<B>,
    communicator: &B::Communicator,
    own: &[u8],
) -> Result<Vec<Vec<u8>>, Error> {
    let digits: Vec<u8> =
        (0..DIGITS).map(|digit| (own.len() / BASE.pow(digit as u32) % BASE) as u8).collect();
    let lengths: Vec<usize> = gather_equal(device, communicator, &digits)?
        .chunks_exact(DIGITS)
        .map(|digits| digits.iter().rev().fold(0, |length, &digit| length * BASE + usize::from(digit)))
        .collect();
    let longest = lengths.iter().copied().max().unwrap_or(0).max(1);
    let mut padded = own.to_vec();
    padded.resize(longest, 0);
    let all = gather_equal(device, communicator, &padded)?;
    Ok(all.chunks_exact(longest).zip(lengths).map(|(bytes, length)| bytes[..length].to_vec()).collect())
}

/// Replaces each value by its sum over all ranks of the communicator. All of them call it.
///
/// # Errors
/// If the engine or the communicator fails.
pub(super) fn sum<B: Backend>(
    device: &mut RankDevice<B>,
    communicator: &B::Communicator,
    values: &mut [f32],
) -> Result<(), Error> {
    let RankDevice { engine, queue, communication, .. } = device;
    let mut buffer = engine.allocate(values.len())?;
    engine.upload(values, &mut buffer, queue)?;
    communicator.all_reduce(&mut buffer, ReduceOp::Sum, communication)?;
    Ok(engine.download(&buffer, values, queue)?)
}

/// Returns the concatenated bytes of all ranks, which have equal lengths.
fn gather_equal<B: Backend>(
    device: &mut RankDevice<B>,
    communicator: &B::Communicator,
    own: &[u8],
) -> Result<Vec<u8>, Error> {
    let RankDevice { engine, queue, communication, .. } = device;
    let all = own.len() * communicator.size();
    let (mut send, mut receive) = (engine.allocate(own.len())?, engine.allocate(all)?);
    let elements: Vec<f32> = own.iter().map(|&byte| f32::from(byte)).collect();
    engine.upload(&elements, &mut send, queue)?;
    communicator.all_gather(&mut send, &mut receive, communication)?;
    let mut elements = vec![0.0; all];
    engine.download(&receive, &mut elements, queue)?;
    Ok(elements.into_iter().map(|element| element as u8).collect())
}
