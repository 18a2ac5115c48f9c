//! Creation and release of groups.

use std::fs;
use std::thread;
use std::time::Duration;

use collectives::{
    Communicator, Group, HostBuffer, MpiCommunicator, MpiWorld, ReduceOp, Request, WaitStrategy,
};

use super::start;

fn all_reduce_is_right(group: &MpiCommunicator) {
    let mut sum = HostBuffer::from(vec![1_i32; 3]);
    group.all_reduce(&mut sum, ReduceOp::Sum, &mut ()).expect("all members are there");
    assert_eq!(sum, vec![i32::try_from(group.size()).expect("few ranks"); 3]);
}

/// Returns the number of memory pages of this process.
fn pages() -> usize {
    let sizes = fs::read_to_string("/proc/self/statm").expect("Linux reports the memory of a process");
    sizes.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("the second number")
}

/// Groups of different sizes, one after another, dropped before and after their requests and their
/// subgroups.
pub(crate) fn create_and_drop(groups: u64) {
    let ranks = start(&MpiWorld::new().with_wait(WaitStrategy::Yield));
    let kept = ranks.group(&[0, 1, 2]).expect("the group is made");
    let mut at_first = 0;
    for round in 0..groups {
        if round == 200 {
            at_first = pages();
        }
        let color = u32::from(round % 2 == 0 && ranks.rank() == 2);
        let group = ranks.split(Some(color), 0).expect("the group is made").expect("a color was given");
        match round % 16 {
            0 => all_reduce_is_right(&group),
            1 => {
                let sum = group.start_all_reduce(vec![1_i64; 10_000].into(), ReduceOp::Sum, &mut ());
                drop(group);
                let sum = sum.and_then(Request::wait).expect("a request outlasts its communicator");
                assert_eq!(sum[9_999], 3);
            }
            2 => {
                drop(Communicator::<i32>::start_all_reduce(
                    &group,
                    vec![1; 9].into(),
                    ReduceOp::Max,
                    &mut (),
                ));
            }
            3 => {
                let (reverse, clone) =
                    (group.group(&[2, 1, 0]).expect("the subgroup is made"), group.clone());
                drop(group);
                all_reduce_is_right(&clone.group(&[2, 1, 0]).expect("it is listed"));
                drop(clone);
                all_reduce_is_right(&reverse);
            }
            _ => {}
        }
    }
    // A group takes two pages.
    let grown = pages().saturating_sub(at_first);
    assert!(grown < 1_000, "{groups} groups leave {grown} pages");
    all_reduce_is_right(&kept);
    all_reduce_is_right(&ranks);
}

/// Ranks 0 and 1 drop a group before rank 2 does.
pub(crate) fn dropped_late_by_one_rank() {
    let ranks = start(&MpiWorld::new().with_timeout(Duration::from_millis(500)));
    let group = ranks.split(Some(0), 0).expect("the group is made");
    ranks.barrier(&mut ()).expect("all ranks are there");
    if ranks.rank() == 2 {
        // The other ranks do not wait for this one to free the group.
        thread::sleep(Duration::from_millis(300));
    }
    drop(group);
    for _ in 0..200 {
        all_reduce_is_right(&ranks.split(Some(0), 0).expect("the group is made").expect("a color was given"));
    }
}
