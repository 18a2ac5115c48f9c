//! Choices among the kernels of GPUs and the orders of images, and their report.

use std::collections::BTreeMap;

use anyhow::bail;
use clap::{Args, ValueEnum};
use deeppool::runtime::ImageOrder;
use deeppool::train::{ChosenKernel, TrainConfig};
use layer_engine::{CandidateTime, KernelChoice, KernelPart};
use serde_json::{Value, json};

use super::output::time;
use super::ranks::RankEngine;

/// Options for the choice among kernels.
#[derive(Args)]
pub(crate) struct KernelArgs {
    /// Kernels of convolutions, linear layers and attention on GPUs [default: fastest, or vendor on
    /// emulated GPUs]
    #[arg(long, value_enum, value_name = "RULE")]
    kernels: Option<KernelRule>,
    /// Permit kernels of cuDNN whose results differ from run to run
    #[arg(long)]
    nondeterministic: bool,
}

/// Rule by which kernels of convolutions, linear layers and attention are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum KernelRule {
    /// Fastest on the device of cuDNN's, cuBLASLt's and own kernels, timed once for each shape
    Fastest,
    /// First proposal of cuDNN or cuBLASLt, without timing
    Vendor,
    /// Own kernels
    Own,
}

impl KernelArgs {
    /// Checks that the options fit the engine.
    ///
    /// # Errors
    /// If an option is given and the engine does not run on GPUs, or if one has no effect beside
    /// the other.
    pub(crate) fn check(&self, engine: RankEngine) -> anyhow::Result<()> {
        let option = match (self.kernels, self.nondeterministic) {
            (Some(_), _) => "--kernels",
            (None, true) => "--nondeterministic",
            (None, false) => return Ok(()),
        };
        if engine == RankEngine::Cpu {
            bail!("{option} is for GPUs: give --engine cuda, or leave it out");
        }
        if self.nondeterministic && self.kernels == Some(KernelRule::Own) {
            bail!("--nondeterministic has no effect beside --kernels own: leave one of them out");
        }
        Ok(())
    }

    /// Returns the configuration with these options.
    pub(crate) fn configure<'a>(&self, config: TrainConfig<'a>) -> TrainConfig<'a> {
        let choice = self.kernels.map(|rule| match rule {
            KernelRule::Fastest => KernelChoice::Fastest,
            KernelRule::Vendor => KernelChoice::Vendor,
            KernelRule::Own => KernelChoice::Own,
        });
        config.with_kernels(choice).with_nondeterministic(self.nondeterministic)
    }
}

/// Returns the choices of all kernels as JSON: an object for each part of a kernel.
pub(crate) fn kernels_json(kernels: &[ChosenKernel]) -> Value {
    let of_part = |step: &str, part: &KernelPart| {
        json!({"step": step, "part": part.part, "chosen": part.chosen, "reason": part.reason,
            "candidates": part.candidates.iter().map(candidate_json).collect::<Value>()})
    };
    let parts = kernels.iter().flat_map(|kernel| kernel.parts.iter().map(|part| of_part(&kernel.step, part)));
    parts.collect()
}

fn candidate_json(candidate: &CandidateTime) -> Value {
    json!({"name": candidate.name, "time_us": candidate.time.map(|time| time.as_secs_f64() * 1e6)})
}

/// Returns an order of images as JSON, with the times of both orders if they were measured.
pub(crate) fn image_order_json(order: &ImageOrder) -> Value {
    let us = order.times.map(|times| times.map(|time| time.as_secs_f64() * 1e6));
    json!({"layout": order.layout.label(), "reason": order.reason,
        "channels_first_us": us.map(|[first, _]| first), "channels_last_us": us.map(|[_, last]| last)})
}

/// Returns an order of images as a text, such as `channels-first: no tensor cores`.
pub(crate) fn image_order_text(order: &ImageOrder) -> String {
    let times = order.times.map(|[first, last]| {
        format!(" (kernels: {} with channels first, {} with channels last)", time(first), time(last))
    });
    format!("{}: {}{}", order.layout.label(), order.reason, times.unwrap_or_default())
}

/// Returns the number of parts of kernels by each library and by own kernels as a text, such as
/// `14 by cuDNN, 2 own`; `None` without choices.
pub(crate) fn kernels_text(kernels: &[ChosenKernel]) -> Option<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for part in kernels.iter().flat_map(|kernel| &kernel.parts) {
        *counts.entry(part.chosen.split(' ').next().unwrap_or_default()).or_default() += 1;
    }
    let named = counts.iter().map(|(&by, count)| match by {
        "own" => format!("{count} own"),
        library => format!("{count} by {library}"),
    });
    let named: Vec<String> = named.collect();
    (!named.is_empty()).then(|| named.join(", "))
}
