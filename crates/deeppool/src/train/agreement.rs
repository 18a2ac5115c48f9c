//! Comparison of the ranks' configurations before the first step, since ranks that are processes
//! are configured one by one. Ranks exchange fingerprints: one SHA-256 hash for each part of the
//! configuration, concatenated.

use sha2::{Digest, Sha256};

use super::{TrainConfig, Weights};
use crate::Error;

/// Parts of the configuration that must be equal on all ranks, as named in the error.
const NAMES: [&str; 8] = [
    "version of deeppool",
    "network",
    "data",
    "plan",
    "options",
    "initial weights",
    "background jobs",
    "checkpoint to resume from",
];
/// Number of bytes of a SHA-256 hash.
const HASH_BYTES: usize = 32;

/// Returns the fingerprint of this rank's configuration. `iteration` is the number of completed
/// iterations in the checkpoint that the rank would resume from, or 0 without one.
pub(super) fn fingerprint(config: &TrainConfig<'_>, iteration: u64) -> Vec<u8> {
    let options = (
        config.batch(),
        config.length,
        config.learning_rate,
        config.seed,
        config.shuffle,
        config.traced_iterations,
        config.lowering().optimizer,
        config.image_layout,
    );
    let checkpoint = config.checkpoint.as_ref().map(|checkpoint| (checkpoint.every, checkpoint.keep_best));
    let of_background = config.background.iter().flat_map(|job| {
        [
            hash(job.network.to_json()),
            job.dataset.hash(),
            hash(format!("{:?}", (job.batch, job.micro_batches, job.weight, &job.ranks, job.seed))),
        ]
        .concat()
    });
    let hashes: [[u8; HASH_BYTES]; NAMES.len()] = [
        hash(env!("CARGO_PKG_VERSION")),
        hash(config.network().to_json()),
        config.dataset.hash(),
        hash(format!("{:?} {:?}", config.placement(), config.lowering())),
        hash(format!("{options:?} {checkpoint:?}")),
        hash(config.initial.map(Weights::to_bytes).unwrap_or_default()),
        hash(of_background.collect::<Vec<u8>>()),
        hash(iteration.to_string()),
    ];
    hashes.concat()
}

/// Compares the fingerprints of all ranks, which are indexed by rank.
///
/// # Errors
/// [`Error::RankDiffers`] with the first rank that differs from the majority, or, if there is none,
/// from rank 0, and with the first part of the configuration in which any ranks differ.
pub(super) fn check(fingerprints: &[Vec<u8>]) -> Result<(), Error> {
    for (index, part) in NAMES.into_iter().enumerate() {
        // Another version may have other hashes.
        let of = |fingerprint: &Vec<u8>| {
            fingerprint.get(index * HASH_BYTES..(index + 1) * HASH_BYTES).map(<[u8]>::to_vec)
        };
        let values: Vec<_> = fingerprints.iter().map(of).collect();
        let count = |value: &Option<Vec<u8>>| values.iter().filter(|&other| other == value).count();
        // The last of the maxima: the value of the first rank, if counts are equal.
        let Some(usual) = values.iter().rev().max_by_key(|&value| count(value)) else { continue };
        if let Some(rank) = values.iter().position(|value| value != usual) {
            let other = values.iter().position(|value| value == usual).unwrap_or(0);
            return Err(Error::RankDiffers { rank, other, part });
        }
    }
    Ok(())
}

fn hash(bytes: impl AsRef<[u8]>) -> [u8; HASH_BYTES] {
    Sha256::digest(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_in_the_minority_is_named() {
        let with = |index: usize, byte: u8| {
            let mut fingerprint = vec![0; NAMES.len() * HASH_BYTES];
            fingerprint[index * HASH_BYTES + 3] = byte;
            fingerprint
        };
        let named = |all: &[Vec<u8>]| match check(all) {
            Err(Error::RankDiffers { rank, other, part }) => Some((rank, other, part)),
            _ => None,
        };
        assert_eq!(named(&[with(0, 0), with(0, 0), with(0, 0)]), None);
        assert_eq!(named(&[with(2, 0), with(2, 0), with(2, 9)]), Some((2, 0, "data")));
        assert_eq!(named(&[with(1, 9), with(1, 0), with(1, 0)]), Some((0, 1, "network")));
        assert_eq!(named(&[with(3, 1), with(3, 2)]), Some((1, 0, "plan")));
        assert_eq!(named(&[with(0, 1), vec![]]), Some((1, 0, "version of deeppool")));
    }
}
