//! Options that several experiments have.

mod choice;
pub(crate) mod inputs;
mod output;
mod setting;
mod values;

pub(crate) use choice::{DeviceOptions, MachineOptions, NetworkOptions};
pub(crate) use output::{OutputOptions, RunOptions, make_folder};
pub(crate) use setting::{LimitOptions, PolicyOptions, TestbedOptions};
pub(crate) use values::{batch, gpus};
