//! The suite's laws, on random groups of the job's ranks.

use std::cell::RefCell;
use std::panic;
use std::time::Duration;

use collectives::{Group, MpiCommunicator, MpiWorld, Result, WaitStrategy};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::start;
use crate::suite::{self, Case};

type Law = fn(&MpiCommunicator, &Case) -> Result<()>;

macro_rules! laws {
    (any memory { $($any:ident)* } host memory { $($host:ident)* }) => {
        const LAWS: &[(&str, Law)] = &[
            $((stringify!($any), suite::$any),)*
            $((stringify!($host), suite::$host),)*
        ];
    };
}

suite::for_each_law!(laws);

/// What only holds where ranks compare their calls.
const CHECKED: [&str; 2] =
    ["another_call_is_a_mismatch_on_all", "a_wrong_buffer_of_one_rank_is_an_error_on_all"];

thread_local! {
    /// What is being tried, for the message of a panic.
    static TRYING: RefCell<String> = const { RefCell::new(String::new()) };
}

pub(crate) fn run(seed: u64, cases: u64) {
    let wait = [WaitStrategy::Yield, WaitStrategy::Park, WaitStrategy::Spin][seed as usize % 3];
    let world = MpiWorld::new().with_wait(wait).with_timeout(Duration::from_secs(20));
    try_laws(&world, seed, cases, |_| true);
}

pub(crate) fn run_unchecked(seed: u64, cases: u64) {
    let world = MpiWorld::new().with_checks(false).with_timeout(Duration::from_secs(20));
    try_laws(&world, seed, cases, |law| !CHECKED.contains(&law));
}

/// Every rank draws the same cases from the same seed.
fn try_laws(world: &MpiWorld, seed: u64, cases: u64, holds: fn(&str) -> bool) {
    let print = panic::take_hook();
    // Before MPI's own, which ends the process.
    panic::set_hook(Box::new(move |information| {
        TRYING.with_borrow(|trying| eprintln!("{trying}"));
        print(information);
    }));
    let everyone = start(world);
    let mut seed_bytes = [0; 32];
    seed_bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed_bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let groups = (Just((0..everyone.size()).collect::<Vec<_>>()).prop_shuffle(), 1..=everyone.size());
    let drawn = (suite::cases(), groups);
    for number in 0..cases {
        let (case, (order, size)) = drawn.new_tree(&mut runner).expect("cases can be drawn").current();
        let list = &order[..size];
        if list.contains(&everyone.rank()) {
            let group = everyone.group(list).expect("the group is made");
            for (name, law) in LAWS.iter().filter(|(name, _)| holds(name)) {
                TRYING.set(format!(
                    "rank {} of {list:?}, law {name}, case {number} of seed {seed}: {case:?}",
                    everyone.rank()
                ));
                law(&group, &case).unwrap_or_else(|error| panic!("{name}: {error}"));
            }
        }
        everyone.barrier(&mut ()).expect("all ranks are there");
    }
}
