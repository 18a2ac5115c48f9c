//! Trials as executed by one rank.

mod eager_limit;
mod faults;
mod groups;
mod laws;

use std::process::ExitCode;

use collectives::{MpiCommunicator, MpiWorld};

use crate::suite;

suite::host_memory!(MpiCommunicator, checks: true, reduces_half: false);

/// Runs the trial of this name.
pub(crate) fn run(trial: &str, arguments: &[String]) -> ExitCode {
    let argument =
        |place: usize| arguments.get(place).and_then(|argument| argument.parse().ok()).unwrap_or(0);
    match trial {
        "laws" => laws::run(argument(0), argument(1)),
        "laws-unchecked" => laws::run_unchecked(argument(0), argument(1)),
        "eager-limit" => eager_limit::around_the_limit(),
        "mismatched" => eager_limit::mismatched(),
        "panic" => faults::panic(),
        "panic-while-polling" => faults::panic_while_polling(),
        "panic-with-own-hook" => faults::panic_with_own_hook(),
        "unmatched" => faults::unmatched(),
        "killed" => faults::killed(argument(0)),
        "killed-while-grouping" => faults::killed_while_grouping(argument(0)),
        "late-rank" => faults::late_rank(argument(0)),
        "missing-in-group-creation" => faults::missing_in_group_creation(),
        "many-groups" => groups::create_and_drop(argument(0)),
        "group-dropped-late" => groups::dropped_late_by_one_rank(),
        "mistakes" => faults::mistakes(),
        "alone" => faults::alone(),
        other => panic!("there is no trial {other}"),
    }
    ExitCode::SUCCESS
}

fn start(world: &MpiWorld) -> MpiCommunicator {
    world.communicator().expect("MPI starts")
}
