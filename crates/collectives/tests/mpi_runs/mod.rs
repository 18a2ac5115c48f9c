//! Trials: each starts its ranks under `mpirun` and checks their output.

mod job;

use std::env;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use job::{Job, Outcome};
use libtest_mimic::{Arguments, Failed, Trial};

/// Time limit of a trial, for a loaded machine.
const LIMIT: Duration = Duration::from_secs(180);

pub(crate) fn run() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Each trial has more ranks than a small machine has cores.
    arguments.test_threads = Some(1);
    if Command::new("mpirun").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("SKIPPED: the tests on MPI: there is no `mpirun` on the PATH");
        return ExitCode::SUCCESS;
    }
    let trials = vec![
        Trial::test("laws_hold_on_four_ranks", || laws(4, "laws", 100)),
        Trial::test("laws_hold_on_three_ranks", || laws(3, "laws", 50)),
        Trial::test("laws_hold_without_checks", || laws(4, "laws-unchecked", 50)),
        Trial::test("small_and_large_all_reduces_have_the_same_bits_on_all_ranks", || {
            finishes(&Job::new(4, "eager-limit").run(LIMIT)?)
        }),
        Trial::test("eager_data_of_a_mismatched_call_is_ignored", || {
            finishes(&Job::new(3, "mismatched").run(LIMIT)?)
        }),
        Trial::test("a_panicking_rank_ends_the_job", || panics("panic")),
        Trial::test("a_rank_that_panics_while_it_polls_ends_the_job", || panics("panic-while-polling")),
        Trial::test("a_panic_in_a_program_with_another_hook_ends_the_job", || panics("panic-with-own-hook")),
        Trial::test("a_dropped_request_without_a_match_is_reported_at_the_end", unmatched),
        Trial::test("a_killed_rank_is_named", kills),
        Trial::test("a_rank_killed_during_group_creation_is_named", kills_while_grouping),
        Trial::test("mpirun_ends_a_job_with_a_killed_rank", killed_for_mpirun),
        Trial::test("a_late_rank_is_named_and_gets_the_error", late_rank),
        Trial::test("a_rank_missing_in_group_creation_is_named", missing_in_group_creation),
        Trial::test("dropped_groups_are_freed", dropped_groups),
        Trial::test("a_group_can_be_dropped_at_different_times", || {
            finishes(&Job::new(3, "group-dropped-late").run(LIMIT)?)
        }),
        Trial::test("unsupported_calls_are_errors", || finishes(&Job::new(2, "mistakes").run(LIMIT)?)),
        Trial::test("without_mpirun_there_is_one_rank", || finishes(&Job::alone("alone").run(LIMIT)?)),
        Trial::test("the_loader_names_a_missing_library", without_the_library),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn finishes(outcome: &Outcome) -> Result<(), Failed> {
    if outcome.success { Ok(()) } else { Err(outcome.failed("the job does not succeed")) }
}

/// Checks the laws with a fixed seed, or that of `MPI_SEED`.
fn laws(ranks: usize, trial: &str, cases: usize) -> Result<(), Failed> {
    let seed = number_in("MPI_SEED").unwrap_or(20 + ranks);
    finishes(&Job::new(ranks, trial).with(seed).with(cases).run(LIMIT)?)
}

fn number_in(variable: &str) -> Option<usize> {
    env::var(variable).ok()?.parse().ok()
}

fn panics(trial: &str) -> Result<(), Failed> {
    let outcome = Job::new(4, trial).run(LIMIT)?;
    let Some(panicked) = outcome.time_of("PANIC") else { return Err(outcome.failed("no rank panicked")) };
    let took = outcome.ended.saturating_sub(panicked);
    if outcome.success || !outcome.output.contains("on purpose") || outcome.output.contains("SEEN") {
        return Err(outcome.failed("the job does not end by the panic"));
    }
    println!("the job ended {took:?} after the panic");
    if took > Duration::from_secs(2) {
        return Err(outcome.failed(&format!("the job ends {took:?} after the panic")));
    }
    Ok(())
}

fn unmatched() -> Result<(), Failed> {
    let outcome = Job::new(2, "unmatched").run(LIMIT)?;
    let line = "rank 0 ends without finalizing Open MPI: ranks [1] did not join receive";
    if !outcome.success && outcome.output.contains(line) {
        return Ok(());
    }
    Err(outcome.failed("the job does not end with the error of the request"))
}

/// Kills ranks at random times: 10, or the number in `MPI_KILLS`.
fn kills() -> Result<(), Failed> {
    let (mut longest, kills) = (0, number_in("MPI_KILLS").unwrap_or(10));
    for seed in 0..kills {
        let job = Job::new(4, "killed").surviving().with(seed);
        let outcome = job.run(Duration::from_secs(30))?;
        let victim = outcome.victim().ok_or_else(|| outcome.failed("no rank was killed"))?;
        let seen = outcome.seen();
        if seen.len() != 3 {
            return Err(outcome.failed(&format!("seed {seed}: {} of 3 survivors have an error", seen.len())));
        }
        for (missing, waited_ms) in &seen {
            if *missing != [victim] || *waited_ms > 5_000 {
                return Err(outcome.failed(&format!("seed {seed}: not rank {victim} alone is named in time")));
            }
            longest = longest.max(*waited_ms);
        }
    }
    println!("all survivors of {kills} kills named only that rank; the longest wait was {longest} ms");
    Ok(())
}

/// All survivors name the victim: in an error, or in a line before they abort the job if MPI does
/// not return.
fn kills_while_grouping() -> Result<(), Failed> {
    for seed in 0..5 {
        let outcome =
            Job::new(4, "killed-while-grouping").surviving().with(seed).run(Duration::from_secs(30))?;
        let victim = outcome.victim().ok_or_else(|| outcome.failed("no rank was killed"))?;
        let named = format!("ranks [{victim}] did not join group ([0, 1, 2, 3]) within");
        let ends = outcome
            .output
            .lines()
            .filter(|line| line.contains(&named) && line.contains("the job is aborted"));
        let told = outcome.seen().iter().filter(|(missing, _)| *missing == [victim]).count();
        // The first rank that aborts the job may do so before the others have printed anything.
        if ends.count() == 0 && told < 3 {
            return Err(outcome.failed(&format!("seed {seed}: rank {victim} is not named")));
        }
    }
    Ok(())
}

/// Kills a rank without `--enable-recovery`.
fn killed_for_mpirun() -> Result<(), Failed> {
    let outcome = Job::new(4, "killed").with(3).run(Duration::from_secs(30))?;
    let victim = outcome.victim().ok_or_else(|| outcome.failed("no rank was killed"))?;
    if !outcome.success && outcome.output.contains(&format!("process rank {victim} with PID")) {
        return Ok(());
    }
    Err(outcome.failed("mpirun does not name the rank"))
}

/// Runs each operation of the trial.
fn late_rank() -> Result<(), Failed> {
    let names = [
        "all-reduce (sum of 10 f32)",
        "barrier",
        "broadcast (10 i32 from 0)",
        "receive (10 u8 from 0, tag 0)",
        "all-to-all-v (",
        "group ([1, 0, 2])",
        "broadcast (10 i32 from 0)",
    ];
    for (operation, name) in names.into_iter().enumerate() {
        let outcome = Job::new(3, "late-rank").surviving().with(operation).run(LIMIT)?;
        let seen = outcome.seen();
        if seen.len() != 3 || seen.iter().any(|(missing, _)| *missing != [0]) {
            let why = "not all ranks, including the late one, get the error that rank 0 was missing";
            return Err(outcome.failed(&format!("operation {operation}: {why}")));
        }
        if outcome.output.matches(&format!("ranks [0] did not join {name}")).count() != 3 {
            return Err(outcome.failed(&format!("not all ranks get the error that it was missing in {name}")));
        }
    }
    Ok(())
}

fn missing_in_group_creation() -> Result<(), Failed> {
    let outcome = Job::new(3, "missing-in-group-creation").surviving().run(LIMIT)?;
    let seen = outcome.seen();
    if seen.len() == 2
        && seen.iter().all(|(missing, _)| *missing == [1])
        && outcome.output.contains("group ([2, 1, 0])")
    {
        return Ok(());
    }
    Err(outcome.failed("not both ranks get the error that rank 1 is missing"))
}

/// Creates 3,000 groups, or the number in `MPI_GROUPS`. Open MPI has about 65,000 at a time.
fn dropped_groups() -> Result<(), Failed> {
    let groups = number_in("MPI_GROUPS").unwrap_or(3_000);
    finishes(&Job::new(3, "many-groups").with(groups).run(LIMIT)?)
}

/// Runs a copy of this program that requires a library that does not exist.
fn without_the_library() -> Result<(), Failed> {
    let (name, elsewhere) = (b"libmpi.so.40", b"libmpi.so.4?");
    let mut program = std::fs::read(env::current_exe()?)?;
    let at = program.windows(name.len()).position(|window| window == name);
    let at = at.ok_or("the program does not ask for libmpi.so.40")?;
    program[at..at + name.len()].copy_from_slice(elsewhere);
    let copy = job::scratch("without-libmpi");
    std::fs::write(&copy, program)?;
    std::fs::set_permissions(&copy, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let output = Command::new(&copy).output()?;
    std::fs::remove_file(&copy)?;
    let message = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && message.contains("libmpi.so.4?") && message.trim_end().lines().count() == 1
    {
        return Ok(());
    }
    Err(format!("not one line that names the library: {message}").into())
}
