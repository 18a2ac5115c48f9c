//! What the driver knows: safe code, one kind of object a module.

mod call;
mod capture;
mod capture_rules;
mod code;
mod context;
mod copies;
mod device;
mod driver;
mod engine;
mod events;
mod execs;
mod fault;
mod graphs;
mod green;
mod handles;
mod kernels;
mod memory;
mod modules;
mod nodes;
mod plan;
mod report;
mod settings;
mod streams;
pub(crate) mod versions;
mod work;

pub(crate) use call::{Call, with_driver};
pub(crate) use code::Code;
pub(crate) use copies::Place;
pub(crate) use driver::{Driver, only_zero};
pub(crate) use fault::{Fault, Outcome};
pub(crate) use green::Resource;
pub(crate) use handles::Handle;
pub(crate) use modules::Arguments;
pub(crate) use nodes::{Dimensions, KernelNode, NodeWork, Pattern};
