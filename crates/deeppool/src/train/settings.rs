//! The settings of a run that a checkpoint records, so that a run which resumes from it can name
//! those that differ. Settings that must not differ are in the identity of a checkpoint instead.

use std::fmt::Debug;

use sha2::{Digest, Sha256};

use super::checkpoint_files::Settings;
use super::{TrainConfig, Weights};
use crate::program::LowerOptions;

/// Prefix of values that are hashes.
const HASH: &str = "sha256:";

/// Returns the settings of a run on which its results depend, and its plan.
pub(super) fn of_run(config: &TrainConfig<'_>) -> Settings {
    let LowerOptions { optimizer, sync_batch_norm, micro_batches, partial, precision, .. } =
        config.lowering();
    let yes_or_no = |value: bool| if value { "yes" } else { "no" }.to_owned();
    let job = |job: &super::BackgroundConfig<'_>| {
        let data = job.dataset.hash();
        let cut = (job.batch, job.micro_batches, job.weight);
        let ranks = job.ranks.as_ref().map(|ranks| format!("{:?}", (ranks, job.seed)));
        (job.label(), job.network.to_json(), data, cut, ranks)
    };
    let jobs: Vec<_> = config.background.iter().map(job).collect();
    let names: Vec<&str> = jobs.iter().map(|(name, ..)| name.as_str()).collect();
    let background = if jobs.is_empty() { "none".to_owned() } else { names.join(" ") };
    let clip_norm = optimizer.clip_norm.map_or_else(|| "none".into(), |norm| norm.to_string());
    let initial = config.initial.map_or_else(|| "none".into(), |weights| hash(Weights::to_bytes(weights)));
    // The plan also has the options that do not change what is learned.
    let plan = (
        config.placement(),
        LowerOptions {
            optimizer: LowerOptions::default().optimizer,
            precision: LowerOptions::default().precision,
            ..config.lowering().clone()
        },
    );
    [
        ("version of deeppool", env!("CARGO_PKG_VERSION").into()),
        ("network", hash(config.network().to_json())),
        ("data", config.dataset.name().to_string()),
        ("samples", hash(config.dataset.hash())),
        ("learning rate", config.learning_rate.to_string()),
        ("momentum", optimizer.momentum.to_string()),
        ("weight decay", optimizer.weight_decay.to_string()),
        ("clipped norm", clip_norm),
        ("shuffling", yes_or_no(config.shuffle)),
        ("initial weights", initial),
        ("ranks", config.placement().world().to_string()),
        ("plan", hash_of(&plan)),
        ("synchronised batch normalisation", yes_or_no(*sync_batch_norm)),
        ("micro-batches", micro_batches.to_string()),
        ("precision", precision.label().into()),
        ("partial backpropagation", partial.as_ref().map_or_else(|| "none".into(), hash_of)),
        ("background", background),
        ("background jobs", hash_of(&jobs)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// Describes the settings of a run that differ from those of a checkpoint. Returns `None` if none
/// differ. Settings that only one of the two has, which may be of another version, are ignored.
pub(super) fn difference(before: &Settings, now: &Settings) -> Option<String> {
    let changed = now.iter().filter_map(|(name, now)| {
        let before = before.get(name).filter(|&before| before != now)?;
        // Otherwise the name says more.
        let is_hash = [before, now].iter().any(|value| value.starts_with(HASH));
        Some(if is_hash { format!("other {name}") } else { format!("{name} {before} -> {now}") })
    });
    let changed: Vec<String> = changed.collect();
    (!changed.is_empty()).then(|| changed.join(", "))
}

fn hash_of(value: &impl Debug) -> String {
    hash(format!("{value:?}"))
}

fn hash(bytes: impl AsRef<[u8]>) -> String {
    format!("{HASH}{:x}", Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::{Settings, difference};

    fn settings(values: &[(&str, &str)]) -> Settings {
        values.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn differing_settings_are_named_with_both_values() {
        let before =
            settings(&[("learning rate", "0.1"), ("plan", "sha256:1"), ("momentum", "0.9"), ("old", "1")]);
        let now =
            settings(&[("learning rate", "0.2"), ("plan", "sha256:2"), ("momentum", "0.9"), ("new", "1")]);
        assert_eq!(difference(&before, &now).as_deref(), Some("learning rate 0.1 -> 0.2, other plan"));
        assert_eq!(difference(&before, &before), None);
        assert_eq!(difference(&Settings::new(), &now), None);
        let (without, with) =
            (settings(&[("initial weights", "none")]), settings(&[("initial weights", "sha256:1")]));
        assert_eq!(difference(&without, &with).as_deref(), Some("other initial weights"));
    }
}
