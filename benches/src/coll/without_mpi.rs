//! Stands in for `mpi` where it is not built in.

use crate::coll::backend::Implementation;
use crate::coll::measuring::{Effort, Samples, Task};
use crate::command::bad_input;

/// There is none.
pub(crate) enum Mpirun {}

impl Mpirun {
    /// # Errors
    /// Always: it says how to build a program that has MPI.
    pub(crate) fn find() -> anyhow::Result<Self> {
        Err(bad_input(
            "this coll-bench was built without MPI: install Open MPI and libclang (libopenmpi-dev openmpi-bin \
             libclang-dev) and build it with `cargo build --release -p benches --features mpi`",
        ))
    }

    pub(crate) fn launch(
        &self,
        _: usize,
        _: Implementation,
        _: &[Task],
        _: Effort,
    ) -> anyhow::Result<Vec<Samples>> {
        match *self {}
    }
}
