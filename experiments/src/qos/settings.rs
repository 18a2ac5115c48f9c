//! Settings in which policies are compared.

use std::time::Duration;

use deeppool::gpu_mux::DeviceParameters;
use deeppool::plan::Mode as PlanMode;
use deeppool::simulate::contended;

use crate::row::Mode;
use crate::testbed::Testbed;
use crate::workload::{BuiltIn, WORKLOADS, Workload};

/// A foreground and background jobs on GPUs of one kind.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    /// Name of the setting, which identifies its rows.
    pub(super) name: String,
    /// Description of the jobs and the GPUs for the printed text.
    pub(super) about: &'static str,
    /// Network with the foreground's and the background's batch.
    pub(super) workload: Workload,
    /// Way to share the GPUs: background jobs beside a burst plan under the testbed's limit, or
    /// beside data parallelism.
    pub(super) mode: Mode,
    /// Number of hardware queues of a GPU. `None` if it is that of an A100.
    hardware_queues: Option<u32>,
    /// Host time to launch a kernel. `None` if it is that of the default device parameters.
    launch_time: Option<Duration>,
    /// Number of simulated iterations. The first quarter is warm-up.
    pub(super) iterations: usize,
    /// Whether the setting is simulated under all presets, in addition to the policies with and
    /// without its techniques.
    pub(super) compares_presets: bool,
}

/// Number of simulated iterations: adaptive rules need some to converge, and percentiles need many.
const ITERATIONS: usize = 80;

/// Name of the setting with a burst plan of VGG-16.
pub(super) const BURST: &str = "VGG-16";
/// Name of the setting with a burst plan of VGG-16, and one hardware queue for all streams of a
/// GPU.
pub(super) const ONE_QUEUE: &str = "VGG-16, one launch queue";
/// Name of the setting with a burst plan of VGG-16 beside background jobs with long kernels.
pub(super) const LONG_PIECES: &str = "VGG-16, long BG kernels";
/// Name of the setting with data parallelism of VGG-16.
pub(super) const DATA_PARALLEL: &str = "VGG-16, data parallel";
/// Name of the setting with a burst plan of WRN-101-2, whose small kernels do not fill a GPU.
pub(super) const SMALL_KERNELS: &str = "WRN-101-2";
/// Name of the setting with a burst plan of Inception-V3 on a host with slow launches.
pub(super) const SLOW_HOST: &str = "Inception-V3, slow host";

const QUEUE: &str =
    "the same, and all streams launch through one hardware queue (CUDA_DEVICE_MAX_CONNECTIONS=1)";

/// Returns the settings with the networks of the DeepPool paper, for presets and techniques.
///
/// # Errors
/// If a network cannot be built.
pub(super) fn of_the_paper() -> anyhow::Result<Vec<Setting>> {
    let [vgg, wrn, inception] = &WORKLOADS;
    let long = BuiltIn { background_batch: 64, ..*vgg };
    Ok(vec![
        Setting {
            compares_presets: true,
            ..burst(BURST, "a burst plan, which leaves GPUs idle", vgg.load()?)
        },
        Setting { compares_presets: true, ..one_queue(ONE_QUEUE, vgg.load()?) },
        burst(
            LONG_PIECES,
            "the same beside background jobs of batch 64, whose kernels take up to eight times as long",
            long.load()?,
        ),
        Setting {
            mode: Mode::DataParallelCollocated,
            ..burst(DATA_PARALLEL, "all layers on all GPUs, which leaves hardly any time idle", vgg.load()?)
        },
        burst(SMALL_KERNELS, "a burst plan of many small layers, which do not fill a GPU", wrn.load()?),
        Setting {
            launch_time: Some(Duration::from_micros(10)),
            ..burst(
                SLOW_HOST,
                "a burst plan of short kernels, each of which takes the host 10 us to launch",
                inception.load()?,
            )
        },
    ])
}

/// Returns the settings that compare the presets for a given workload: with the GPU's hardware
/// queues, and with one queue for all streams.
pub(super) fn of_workload(workload: &Workload) -> [Setting; 2] {
    let name = &workload.title;
    [
        burst(name, "a burst plan under the limit", workload.clone()),
        one_queue(&format!("{name}, one launch queue"), workload.clone()),
    ]
    .map(|setting| Setting { compares_presets: true, ..setting })
}

fn burst(name: &str, about: &'static str, workload: Workload) -> Setting {
    Setting {
        name: name.into(),
        about,
        workload,
        mode: Mode::BurstCollocated,
        hardware_queues: None,
        launch_time: None,
        iterations: ITERATIONS,
        compares_presets: false,
    }
}

/// Returns a setting with one hardware queue. It simulates fewer iterations, since some take thirty
/// times as long.
fn one_queue(name: &str, workload: Workload) -> Setting {
    Setting { hardware_queues: Some(1), iterations: 20, ..burst(name, QUEUE, workload) }
}

impl Setting {
    /// Returns the planning mode of the foreground.
    pub(super) fn plan(&self, testbed: &Testbed) -> PlanMode {
        if self.mode == Mode::BurstCollocated { testbed.burst() } else { PlanMode::DataParallel }
    }

    /// Returns the launch and contention costs of the setting's GPUs.
    pub(super) fn device(&self) -> DeviceParameters {
        let card = contended();
        DeviceParameters {
            hardware_queues: self.hardware_queues.unwrap_or(card.hardware_queues),
            launch_time: self.launch_time.unwrap_or(card.launch_time),
            ..card
        }
    }
}
