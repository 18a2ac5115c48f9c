//! The trials: each starts its ranks under `mpirun` and judges what they say.

mod job;

use std::env;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use job::{Job, Outcome};
use libtest_mimic::{Arguments, Failed, Trial};

/// More than any trial takes on a loaded machine.
const LIMIT: Duration = Duration::from_secs(60);

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
            finishes(&Job::new(4, "around-the-limit").run(LIMIT)?)
        }),
        Trial::test("data_that_was_sent_along_with_another_call_is_ignored", || {
            finishes(&Job::new(3, "mismatched").run(LIMIT)?)
        }),
        Trial::test("a_panicking_rank_ends_the_job", || panics("panic")),
        Trial::test("a_rank_that_panics_while_it_polls_ends_the_job", || panics("panic-while-polling")),
        Trial::test("a_panicking_rank_with_a_hook_of_its_own_ends_the_job", || panics("panic-with-own-hook")),
        Trial::test("a_dropped_request_that_nothing_matches_is_told_at_the_end", unmatched),
        Trial::test("a_killed_rank_is_named", kills),
        Trial::test("a_rank_killed_while_groups_are_made_is_named", kills_while_grouping),
        Trial::test("mpirun_ends_a_job_of_which_a_rank_was_killed", killed_for_mpirun),
        Trial::test("a_rank_that_comes_late_is_named_and_told", comes_late),
        Trial::test("a_rank_that_never_comes_to_a_group_is_named", never_comes_to_a_group),
        Trial::test("groups_that_are_dropped_are_freed", groups_come_and_go),
        Trial::test("a_group_can_be_dropped_by_some", || {
            finishes(&Job::new(3, "group-kept-by-one").run(LIMIT)?)
        }),
        Trial::test("what_mpi_cannot_do_is_an_error", || finishes(&Job::new(2, "mistakes").run(LIMIT)?)),
        Trial::test("without_mpirun_there_is_one_rank", || finishes(&Job::alone("alone").run(LIMIT)?)),
        Trial::test("without_the_library_the_loader_names_it", without_the_library),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn finishes(outcome: &Outcome) -> Result<(), Failed> {
    if outcome.success { Ok(()) } else { Err(outcome.failed("the job does not succeed")) }
}

/// The seed is fixed, unless `MPI_SEED` gives another.
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
    let line = "rank 0 ends without finalising Open MPI: ranks [1] did not join receive";
    if !outcome.success && outcome.output.contains(line) {
        return Ok(());
    }
    Err(outcome.failed("the job does not end with the error of the request"))
}

/// Kills ranks at random times: 10, or as many as `MPI_KILLS` says.
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
    println!("all survivors of {kills} kills named that rank alone; the longest wait was {longest} ms");
    Ok(())
}

/// All survivors name the victim, in an error or, where MPI does not return, in a line before they end the job.
fn kills_while_grouping() -> Result<(), Failed> {
    for seed in 0..5 {
        let outcome =
            Job::new(4, "killed-while-grouping").surviving().with(seed).run(Duration::from_secs(30))?;
        let victim = outcome.victim().ok_or_else(|| outcome.failed("no rank was killed"))?;
        let named = format!("ranks [{victim}] did not join group ([0, 1, 2, 3]) within");
        let ends =
            outcome.output.lines().filter(|line| line.contains(&named) && line.contains("the job ends"));
        let told = outcome.seen().iter().filter(|(missing, _)| *missing == [victim]).count();
        // The first one that ends the job may come before the others have said anything.
        if ends.count() == 0 && told < 3 {
            return Err(outcome.failed(&format!("seed {seed}: rank {victim} is not named")));
        }
    }
    Ok(())
}

/// Without `--enable-recovery`.
fn killed_for_mpirun() -> Result<(), Failed> {
    let outcome = Job::new(4, "killed").with(3).run(Duration::from_secs(30))?;
    let victim = outcome.victim().ok_or_else(|| outcome.failed("no rank was killed"))?;
    if !outcome.success && outcome.output.contains(&format!("process rank {victim} with PID")) {
        return Ok(());
    }
    Err(outcome.failed("mpirun does not name the rank"))
}

/// For each operation of the trial.
fn comes_late() -> Result<(), Failed> {
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
        let outcome = Job::new(3, "comes-late").surviving().with(operation).run(LIMIT)?;
        let seen = outcome.seen();
        if seen.len() != 3 || seen.iter().any(|(missing, _)| *missing != [0]) {
            let why = "not all ranks, also the late one, are told that rank 0 was missing";
            return Err(outcome.failed(&format!("operation {operation}: {why}")));
        }
        if outcome.output.matches(&format!("ranks [0] did not join {name}")).count() != 3 {
            return Err(outcome.failed(&format!("not all ranks are told that it was missing in {name}")));
        }
    }
    Ok(())
}

fn never_comes_to_a_group() -> Result<(), Failed> {
    let outcome = Job::new(3, "never-comes-to-a-group").surviving().run(LIMIT)?;
    let seen = outcome.seen();
    if seen.len() == 2
        && seen.iter().all(|(missing, _)| *missing == [1])
        && outcome.output.contains("group ([2, 1, 0])")
    {
        return Ok(());
    }
    Err(outcome.failed("not both ranks are told that rank 1 is missing"))
}

/// More than the 65,000 that Open MPI has at a time, if `MPI_GROUPS` says so.
fn groups_come_and_go() -> Result<(), Failed> {
    let groups = number_in("MPI_GROUPS").unwrap_or(3_000);
    finishes(&Job::new(3, "many-groups").with(groups).run(LIMIT)?)
}

/// A copy of this program that asks for a library which is nowhere.
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
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && said.contains("libmpi.so.4?") && said.trim_end().lines().count() == 1 {
        return Ok(());
    }
    Err(format!("not one line that names the library: {said}").into())
}
