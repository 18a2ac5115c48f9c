//! The README shows what is built.

/// The program for several processes needs a library, so that it is no documentation test: it is the example, word for word.
#[test]
fn the_program_for_processes_is_the_example() {
    let example = include_str!("../../examples/mpi_all_reduce.rs");
    let program = &example[example.find("use collectives").expect("it uses the crate")..];
    assert!(include_str!("../../README.md").contains(program.trim_end()), "the README has another program");
}
