//! The state of the emulated driver, in safe code.
//!
//! The modules hold plain tables of one kind of object each, which do not know the driver. `driver`
//! owns the tables, and its child modules implement the calls. The nodes of an *executable graph*
//! (`CUgraphExec`) and of its child graphs are called steps. A *record* of an event is one
//! execution of `cuEventRecord`; records are numbered, and the driver also uses records without an
//! event. A *misuse* is a violation of the rules of the API, which a correct program would not
//! commit.

mod call;
mod call_error;
mod capture;
mod code;
mod contexts;
mod cublaslt;
mod cudnn;
mod driver;
mod driver_lock;
mod events;
mod exec_steps;
mod graphs;
mod green;
mod handles;
mod launch_time;
mod library_work;
mod memory;
mod modules;
mod nccl;
mod nodes;
mod order;
mod report;
mod settings;
mod simulation;
mod streams;
pub(crate) mod versions;
mod work;

pub(crate) use call::Call;
pub(crate) use call_error::{CallError, CallResult, LibraryError, LibraryResult, only_zero};
pub(crate) use code::Code;
pub(crate) use cublaslt::{
    Algorithm, AlgorithmBytes, Attributes, CublasResult, CublasStatus, DescriptorKind, Operands,
};
pub(crate) use cudnn::{CudnnResult, CudnnStatus, Values};
pub(crate) use driver::{CopyOperand, Driver, RankParameters};
pub(crate) use driver_lock::with_driver;
pub(crate) use green::Resource;
pub(crate) use handles::Handle;
pub(crate) use launch_time::{launch_time, set_launch_time};
pub(crate) use library_work::LibraryWork;
pub(crate) use modules::Arguments;
pub(crate) use nccl::{NcclCode, Operation, OperationGroup, OperationKind};
pub(crate) use nodes::{CopiedRows, Dimensions, KernelNode, NodeWork, Pattern, RowPlaces};
