//! Ranks that are processes, by Open MPI.
//!
//! All that a process has under way lies in one [`engine`], which every poll works on. An [`operation`] first exchanges
//! [`header`]s and then moves the data by one call of MPI, which is a [`transfer`] of its [`work`]. Subgroups are made in
//! [`formation`] and freed in [`leaving`]; when something takes too long, there is [`news`]. The foreign functions are called in [`library`] and [`transfer`] only.

mod communicator;
mod ending;
mod engine;
mod formation;
mod group;
mod header;
mod leaving;
mod library;
mod news;
mod operation;
mod pace;
mod request;
mod tags;
mod transfer;
mod work;
mod world;

pub use communicator::MpiCommunicator;
pub use request::{MpiBarrierRequest, MpiExchangeRequest, MpiRequest};
pub use world::MpiWorld;
