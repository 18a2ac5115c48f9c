//! Consistency of the README with the examples.

/// The MPI program needs a library, so it is no documentation test. It is the example, word for
/// word.
#[test]
fn the_readmes_mpi_program_is_the_example() {
    let example = include_str!("../../examples/mpi_all_reduce.rs");
    let program = &example[example.find("use collectives").expect("it uses the crate")..];
    assert!(include_str!("../../README.md").contains(program.trim_end()), "the README has another program");
}
