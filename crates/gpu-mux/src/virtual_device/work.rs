use std::sync::Arc;
use std::time::Duration;

use super::Kernel;

/// What a [`VirtualDevice`](crate::VirtualDevice) runs for a tasklet. Cheap to clone.
#[derive(Debug, Clone, PartialEq)]
pub enum VirtualWork {
    /// Kernels, one after another.
    Compute {
        /// In order; none takes no time.
        kernels: Arc<[Kernel]>,
        /// Launched at once, as a captured graph, instead of one by one.
        captured: bool,
    },
    /// A kernel that exchanges data with other devices. It holds its part of the device from its start to its end,
    /// also while it waits for its partners.
    Communication {
        /// How long the exchange takes once all partners are there, on a device of its own.
        transfer: Duration,
        /// When the exchange can begin.
        partners: Partners,
    },
}

impl VirtualWork {
    /// Kernels that are launched one by one.
    #[must_use]
    pub fn kernels(kernels: impl Into<Arc<[Kernel]>>) -> Self {
        Self::Compute { kernels: kernels.into(), captured: false }
    }

    /// Kernels that are launched at once, as a captured graph.
    #[must_use]
    pub fn graph(kernels: impl Into<Arc<[Kernel]>>) -> Self {
        Self::Compute { kernels: kernels.into(), captured: true }
    }

    /// How long it takes on a device of its own once everything it waits for is there, without launching and
    /// without the gaps between kernels.
    #[must_use]
    pub fn time(&self) -> Duration {
        match self {
            Self::Compute { kernels, .. } => kernels.iter().map(Kernel::time).sum(),
            Self::Communication { transfer, .. } => *transfer,
        }
    }
}

/// When the other devices that take part in a communication are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Partners {
    /// They are there already.
    Ready,
    /// So long after the end of the communication before it on the same stream; for the first one, after the
    /// device's epoch.
    After(Duration),
    /// Simulated by the user of the device: they come when
    /// [`VirtualDevice::partners_arrive`](crate::VirtualDevice::partners_arrive) says so, and it ends no earlier than
    /// [`VirtualDevice::partners_finish`](crate::VirtualDevice::partners_finish) says.
    External,
}

/// A step of a communication whose partners are [`Partners::External`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchange {
    /// The communication.
    pub tasklet: crate::TaskletId,
    /// When it came to this step.
    pub at: Duration,
    /// What it waits for.
    pub awaits: Awaits,
}

/// What a communication waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Awaits {
    /// It is on the device, and its partners are not there yet.
    Partners,
    /// Its own part of the transfer is done.
    End,
}
