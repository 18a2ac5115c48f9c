//! The command `deeppool epochs`.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use clap::{Args, ValueEnum};
use command_line::numbers::{positive, within};
use deeppool::Error;
use deeppool::accuracy::{CurveDescription, Outcome, TargetRun, check_target, epoch_curve, train_to_target};
use deeppool::data::{DataSource, Dataset};
use deeppool::program::{LowerOptions, LoweredTraining, Placement};
use deeppool::time_to_accuracy::EpochCurve;
use deeppool::train::{Length, Progress, TrainConfig};
use indicatif::ProgressBar;
use layer_engine::Sgd;
use layer_graph::LayerGraph;
use serde_json::{Value, json};

use super::counts::{BATCH, THREADS};
use super::epoch_journal::EpochJournal;
use super::launched::check_alone;
use super::left_out::{warn, warn_of_batches};
use super::network::NetworkArgs;
use super::output::{check_outputs, print_json, print_message, table};
use super::progress::progress_bar_of;
use super::signal::stop_signal;

/// Measure the number of epochs to a target accuracy, by global batch
///
/// Trains with each batch and each seed until the accuracy on the held-out samples, evaluated after
/// each epoch, reaches the target. The curve has the mean and the range over the seeds. Runs that
/// miss the target are counted and reported as warnings. A measurement can be stopped at any time:
/// finished runs are kept in FILE.partial, and the same command resumes from it.
#[derive(Args)]
#[command(after_help = "Examples:
  deeppool epochs --model digits-cnn --data digits --batches 16,32,64,128,256 --seeds 5 --target 0.97 -o \
  curve.json
  deeppool epochs --model digits-cnn --data digits --batches 16,64 --target 0.95 --lr 0.05 --lr-scaling \
  linear --epochs 20 -o curve.json
  deeppool epochs --onnx net.onnx --data cifar10:cifar-10 --batches 64,128 --seeds 3 --target 0.6 --threads \
  4 -o curve.json --json")]
pub(crate) struct Epochs {
    #[command(flatten)]
    network: NetworkArgs,
    /// Data set: digits, mnist:DIR, cifar10:DIR, safetensors:FILE, synthetic, synthetic:SEED
    #[arg(long)]
    data: DataSource,
    /// Global batches to measure
    #[arg(long, value_delimiter = ',', value_parser = within(BATCH), required = true)]
    batches: Vec<usize>,
    /// Number of runs with each batch; run i has seed i, from 0
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: u64,
    /// Target accuracy: fraction of the held-out samples that are classified correctly
    #[arg(long, value_name = "ACCURACY")]
    target: f64,
    /// Number of epochs after which a run has missed the target
    #[arg(long = "epochs", value_name = "MAX", default_value_t = 50)]
    #[arg(value_parser = positive)]
    limit: u64,
    /// Learning rate for the smallest batch
    #[arg(long, default_value_t = 0.03)]
    lr: f64,
    /// Scaling of the learning rate with the batch
    #[arg(long, value_enum, default_value_t = LrScaling::Sqrt)]
    lr_scaling: LrScaling,
    /// Momentum
    #[arg(long, default_value_t = 0.9)]
    momentum: f64,
    /// Number of threads of a run
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = within(THREADS))]
    threads: usize,
    /// File of the curve; - is standard output
    #[arg(short, long, value_name = "FILE", value_parser = command_line::files::argument())]
    output: PathBuf,
    /// Print the curve and all runs as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LrScaling {
    /// Proportional to the batch
    Linear,
    /// Proportional to the square root of the batch
    Sqrt,
    /// Constant
    None,
}

impl LrScaling {
    fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Sqrt => "sqrt",
            Self::None => "none",
        }
    }
}

/// Values that all runs share.
struct Session<'a> {
    network: &'a LayerGraph,
    dataset: &'a Dataset,
    bar: ProgressBar,
    stop: &'static AtomicBool,
}

impl Epochs {
    /// Measures the number of epochs to the target accuracy by global batch, or the rest of a
    /// measurement that was interrupted, and writes and prints this curve.
    ///
    /// # Errors
    /// If the data set does not fit the network, none of the runs with one of the batches reaches
    /// the target, or the measurement is stopped.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        check_alone("epochs")?;
        check_outputs([&self.output], self.json)?;
        check_target(self.target)?;
        let network = self.network.load()?;
        let dataset = Dataset::open(&self.data, &network)?;
        let mut batches = self.batches.clone();
        batches.sort_unstable();
        batches.dedup();
        batches.iter().try_for_each(|&batch| dataset.check_batch(batch))?;
        let smallest_batch = batches.first().copied().unwrap_or(1);
        let is_file = command_line::files::is_file(&self.output)?;
        let mut partial = is_file
            .then(|| EpochJournal::open(&self.output, &self.subject(&network, &dataset)))
            .transpose()?;
        let of = CurveDescription {
            network: network.name(),
            dataset: &dataset,
            target: self.target,
            source: self.command(&network, &dataset, &batches),
            note: self.note(smallest_batch),
        };
        let bar = progress_bar_of(batches.len() as u64 * self.seeds, "runs");
        let session = Session { network: &network, dataset: &dataset, bar, stop: stop_signal()? };
        let (mut runs, mut resumed) = (Vec::new(), 0);
        for &batch in &batches {
            let before = runs.len();
            for seed in 0..self.seeds {
                let rate = self.learning_rate(batch, smallest_batch);
                let is_finished = |run: &&TargetRun| self.is_finished(run, (batch, seed, rate), &dataset);
                let finished = partial.as_ref().and_then(|partial| partial.find(is_finished)).cloned();
                resumed += usize::from(finished.is_some());
                let run = match finished {
                    Some(run) => run,
                    None => self.measure(&session, (batch, seed, rate), partial.as_mut())?,
                };
                session.bar.inc(1);
                runs.push(run);
            }
            // Fails early if a batch has no point, because there is no curve then.
            epoch_curve(&of, &runs[before..])?;
            session.bar.suspend(|| runs[before..].iter().for_each(|run| self.warn(run)));
        }
        session.bar.finish_and_clear();
        let curve = epoch_curve(&of, &runs)?;
        let repeated = self.batches.len() - batches.len();
        if repeated > 0 {
            warn(format_args!(
                "left out {repeated} of {} --batches, which are there twice: each is measured once",
                self.batches.len()
            ));
        }
        warn_of_batches(&dataset, &batches);
        command_line::files::write(&self.output, curve.to_json())?;
        if let Some(partial) = partial {
            partial.remove()?;
        }
        if self.json {
            let curve: Value = serde_json::from_str(&curve.to_json())?;
            print_json(&json!({ "output": self.output, "resumed": resumed, "curve": curve, "runs": runs }));
        } else {
            self.show(&curve, &runs, resumed);
        }
        Ok(())
    }

    fn measure(
        &self,
        session: &Session<'_>,
        (batch, seed, rate): (usize, u64, f64),
        partial: Option<&mut EpochJournal>,
    ) -> anyhow::Result<TargetRun> {
        let placement = Placement::single(session.network)?;
        let optimizer = Sgd { momentum: self.momentum, weight_decay: 0.0, clip_norm: None };
        let lowering = LowerOptions::default().with_optimizer(optimizer);
        let training = LoweredTraining::new(session.network, placement, batch, lowering);
        let config = TrainConfig::new(session.dataset, &training)
            .with_length(Length::Epochs(self.limit))
            .with_learning_rate(rate)
            .with_seed(seed)
            .with_threads_per_rank(self.threads)
            .with_stop(session.stop);
        let bar = &session.bar;
        bar.set_message(format!("batch {batch}, seed {seed}"));
        let run = train_to_target(&config, self.target, &|at| {
            if let Progress::Epoch(epoch) = at {
                bar.set_message(format!("batch {batch}, seed {seed}, epoch {}: {}", epoch.epoch, epoch.test));
            }
        });
        match (run, partial) {
            (Ok(run), Some(partial)) => {
                partial.add(&run)?;
                Ok(run)
            }
            (Err(Error::Stopped { done, all, .. }), Some(partial)) => {
                let next =
                    format!("finished runs are in {}: the same command goes on", partial.path().display());
                Err(Error::Stopped { done, all, next }.into())
            }
            (run, _) => Ok(run?),
        }
    }

    fn learning_rate(&self, batch: usize, smallest: usize) -> f64 {
        let ratio = batch as f64 / smallest as f64;
        let factor = match self.lr_scaling {
            LrScaling::Linear => ratio,
            LrScaling::Sqrt => ratio.sqrt(),
            LrScaling::None => 1.0,
        };
        self.lr * factor
    }

    /// Returns whether a run of an earlier command has this batch, seed and learning rate, and is
    /// complete.
    fn is_finished(
        &self,
        run: &TargetRun,
        (batch, seed, rate): (usize, u64, f64),
        dataset: &Dataset,
    ) -> bool {
        let of_epoch = (dataset.train().len() / batch.max(1)) as u64;
        let is_whole = match run.outcome {
            Outcome::Reached { rounds } => rounds <= self.limit,
            Outcome::Missed { rounds } => rounds == self.limit,
            Outcome::Diverged { iteration } => iteration <= self.limit.saturating_mul(of_epoch),
        };
        // The JSON reader may round the last digit differently.
        let is_rate = (run.learning_rate / rate - 1.0).abs() < 1e-12;
        (run.batch, run.seed) == (batch, seed) && is_rate && is_whole
    }

    /// Describes the measurement without batches, seeds and learning rates.
    fn subject(&self, network: &LayerGraph, dataset: &Dataset) -> String {
        let options = &self.network;
        let imported = options.onnx.as_ref().or(options.pt2.as_ref());
        let file = options.graph.as_ref().or(imported).or(options.hf.as_ref());
        let network = match (file, options.sequence) {
            (Some(file), Some(tokens)) => {
                format!("{} ({}, {tokens} tokens)", network.name(), file.display())
            }
            (Some(file), None) => format!("{} ({})", network.name(), file.display()),
            (None, _) => network.name().into(),
        };
        format!("{network} on {} to {} with momentum {}", dataset.name(), self.target, self.momentum)
    }

    /// Returns the command that measures this curve.
    fn command(&self, network: &LayerGraph, dataset: &Dataset, batches: &[usize]) -> String {
        let options = &self.network;
        let network = match (&options.onnx, &options.pt2, &options.graph, &options.hf) {
            (Some(file), ..) => format!("--onnx {}", file.display()),
            (_, Some(file), ..) => format!("--pt2 {}", file.display()),
            (_, _, Some(file), _) => format!("--graph {}", file.display()),
            (.., Some(file)) => {
                let sequence = options.sequence.map(|tokens| format!(" --sequence {tokens}"));
                format!("--hf {}{}", file.display(), sequence.unwrap_or_default())
            }
            _ => format!("--model {}", network.name()),
        };
        let batches: Vec<String> = batches.iter().map(usize::to_string).collect();
        format!(
            "deeppool epochs {network} --data {} --batches {} --seeds {} --target {} --epochs {} --lr {} \
             --lr-scaling {} --momentum {}, \
             version {}",
            dataset.name(),
            batches.join(","),
            self.seeds,
            self.target,
            self.limit,
            self.lr,
            self.lr_scaling.name(),
            self.momentum,
            env!("CARGO_PKG_VERSION"),
        )
    }

    fn note(&self, smallest_batch: usize) -> String {
        let scaling = match self.lr_scaling {
            LrScaling::Linear => format!(" at batch {smallest_batch}, in proportion to the batch"),
            LrScaling::Sqrt => {
                format!(" at batch {smallest_batch}, in proportion to the square root of the batch")
            }
            LrScaling::None => " at every batch".into(),
        };
        format!(
            "SGD with momentum {} and learning rate {}{scaling}; evaluated after each round over the \
             training samples; epochs are samples \
             trained with over all training samples",
            self.momentum, self.lr
        )
    }

    fn warn(&self, run: &TargetRun) {
        let TargetRun { batch, seed, best_accuracy, .. } = run;
        match run.outcome {
            Outcome::Reached { .. } => {}
            Outcome::Missed { rounds } => eprintln!(
                "warning: batch {batch}, seed {seed}: accuracy {} is not reached in {rounds} epochs, the \
                 best is {best_accuracy:.4}",
                self.target
            ),
            Outcome::Diverged { iteration } => eprintln!(
                "warning: batch {batch}, seed {seed}: the loss is not finite in iteration {iteration}, at \
                 learning rate {}",
                run.learning_rate
            ),
        }
    }

    fn show(&self, curve: &EpochCurve, runs: &[TargetRun], resumed: usize) {
        let document = curve.document();
        print_message!("{} on {} to {}", document.network, document.dataset, document.target);
        let mut rows = table(&["batch", "learning rate", "epochs", "fewest", "most", "reached by"]);
        for point in curve.points() {
            let of_batch = |run: &&TargetRun| run.batch == point.batch;
            let rate = runs.iter().find(of_batch).map_or(self.lr, |run| run.learning_rate);
            let figure =
                |epochs: Option<f64>| epochs.map_or_else(String::new, |epochs| format!("{epochs:.2}"));
            rows.add_row([
                point.batch.to_string(),
                format!("{rate:.4}"),
                figure(Some(point.epochs)),
                figure(point.epochs_min),
                figure(point.epochs_max),
                format!("{} of {}", point.runs.unwrap_or(0), self.seeds),
            ]);
        }
        print_message!("{rows}");
        if resumed > 0 {
            print_message!(
                "{resumed} of {} runs were finished by an earlier command that was stopped",
                runs.len()
            );
        }
        print_message!("wrote {}", self.output.display());
    }
}
