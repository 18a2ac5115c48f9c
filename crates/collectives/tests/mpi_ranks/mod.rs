//! What one rank of a trial does.

mod faults;
mod groups;
mod laws;
mod sizes;

use std::process::ExitCode;

use collectives::{MpiCommunicator, MpiWorld};

use crate::suite;

suite::host_memory!(MpiCommunicator, checks: true, reduces_half: false);

/// Runs a trial by its name.
pub(crate) fn run(trial: &str, arguments: &[String]) -> ExitCode {
    let argument =
        |place: usize| arguments.get(place).and_then(|argument| argument.parse().ok()).unwrap_or(0);
    match trial {
        "laws" => laws::run(argument(0), argument(1)),
        "laws-unchecked" => laws::run_unchecked(argument(0), argument(1)),
        "around-the-limit" => sizes::around_the_limit(),
        "mismatched" => sizes::mismatched(),
        "panic" => faults::panic(),
        "panic-while-polling" => faults::panic_while_polling(),
        "panic-with-own-hook" => faults::panic_with_own_hook(),
        "unmatched" => faults::unmatched(),
        "killed" => faults::killed(argument(0)),
        "killed-while-grouping" => faults::killed_while_grouping(argument(0)),
        "comes-late" => faults::comes_late(argument(0)),
        "never-comes-to-a-group" => faults::never_comes_to_a_group(),
        "many-groups" => groups::come_and_go(argument(0)),
        "group-kept-by-one" => groups::kept_by_one(),
        "mistakes" => faults::mistakes(),
        "alone" => faults::alone(),
        other => panic!("there is no trial {other}"),
    }
    ExitCode::SUCCESS
}

fn start(world: &MpiWorld) -> MpiCommunicator {
    world.communicator().expect("MPI starts")
}
