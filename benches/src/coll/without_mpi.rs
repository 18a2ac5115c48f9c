//! Replacement of the module `mpi` for builds without the feature.

use crate::coll::backend::Implementation;
use crate::coll::timing::{SampleOptions, Samples, Task};
use crate::command::bad_input;

/// Type of the program `mpirun`. It has no values, because this build cannot use the program.
pub(crate) enum Mpirun {}

impl Mpirun {
    /// Finds the program.
    ///
    /// # Errors
    /// Always, with instructions for a build with MPI.
    pub(crate) fn find() -> anyhow::Result<Self> {
        Err(bad_input(
            "this coll-bench was built without MPI: install Open MPI and libclang (libopenmpi-dev \
             openmpi-bin libclang-dev) and build it with `cargo build --release -p benches --features mpi`",
        ))
    }

    /// Measures tasks; never called, since there is no value.
    pub(crate) fn launch(
        &self,
        _: usize,
        _: Implementation,
        _: &[Task],
        _: SampleOptions,
    ) -> anyhow::Result<Vec<Samples>> {
        match *self {}
    }
}
