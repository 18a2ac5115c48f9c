//! The suite's laws on random groups of the job's ranks.

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

/// Laws that hold only if ranks compare their calls.
const LAWS_WITH_CHECKS: [&str; 2] =
    ["a_different_call_is_a_mismatch_on_all", "a_wrong_buffer_length_of_one_rank_is_an_error_on_all"];

thread_local! {
    /// Description of the current law, printed in a panic.
    static CURRENT_LAW: RefCell<String> = const { RefCell::new(String::new()) };
}

pub(crate) fn run(seed: u64, cases: u64) {
    let wait = [WaitStrategy::Yield, WaitStrategy::Park, WaitStrategy::Spin][seed as usize % 3];
    let world = MpiWorld::new().with_wait(wait).with_timeout(Duration::from_secs(20));
    check_laws(&world, seed, cases, |_| true);
}

pub(crate) fn run_unchecked(seed: u64, cases: u64) {
    let world = MpiWorld::new().with_checks(false).with_timeout(Duration::from_secs(20));
    check_laws(&world, seed, cases, |law| !LAWS_WITH_CHECKS.contains(&law));
}

/// Checks the laws that satisfy `holds`. Every rank generates the same cases from the same seed.
fn check_laws(world: &MpiWorld, seed: u64, cases: u64, holds: fn(&str) -> bool) {
    let print = panic::take_hook();
    // Set before the backend's hook, which ends the process.
    panic::set_hook(Box::new(move |information| {
        CURRENT_LAW.with_borrow(|law| eprintln!("{law}"));
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
                CURRENT_LAW.set(format!(
                    "rank {} of {list:?}, law {name}, case {number} of seed {seed}: {case:?}",
                    everyone.rank()
                ));
                law(&group, &case).unwrap_or_else(|error| panic!("{name}: {error}"));
            }
        }
        everyone.barrier(&mut ()).expect("all ranks are there");
    }
}
