//! Definition of a conflict.

use super::{Machine, Words};
use cuda_emulator::Setting;
use std::thread;

/// Runs two kernels in unordered streams and returns the conflicts.
fn conflicts_of(kernels: [&str; 2], uses: impl Fn(&Machine) -> [([Words; 2], Words); 2]) -> Vec<String> {
    let machine = Machine::new(kernels);
    let uses = uses(&machine);
    for (kernel, (from, to)) in kernels.into_iter().zip(uses) {
        machine.launch(kernel, machine.cuda.stream(0), from, to);
    }
    machine.conflicts()
}

#[test]
fn conflicts_name_both_tasks_the_memory_and_the_bytes() {
    let mut start = 0;
    let found = {
        let machine = Machine::new(["make", "use"]);
        let (x, y) = (machine.words(8), machine.words(8));
        start += x.address;
        let part = |from: u64, count| Words { address: x.address + 4 * from, count };
        let [a, b] = [machine.cuda.stream(0), machine.cuda.stream(0)];
        for _ in 0..2 {
            machine.launch("make", a, [y; 2], part(0, 4));
            machine.cuda.ok(machine.cuda.cuCtxSynchronize());
        }
        machine.launch("make", a, [y; 2], part(0, 4));
        machine.launch("use", b, [part(3, 2); 2], Words { address: y.address, count: 2 });
        machine.conflicts()
    };
    let expected = [
        format!(
            "kernel use in stream 2 of device 0 reads bytes 12 to 15 of the 32 bytes at {start:#x}, \
             which kernel make in stream 1 of device 0 writes, and nothing orders the two"
        ),
        format!(
            "kernel use in stream 2 of device 0 writes bytes 0 to 7 of the 32 bytes at {:#x}, \
             which kernel make in stream 1 of device 0 reads, and nothing orders the two",
            start + 1024
        ),
    ];
    assert_eq!(found, expected);
}

#[test]
fn conflicts_do_not_depend_on_the_execution_order() {
    let mut found = [0, -5].map(|priority| {
        let machine = Machine::new(["block", "make", "use"]);
        let [x, y] = [machine.words(4), machine.words(4)];
        let [a, b] = [machine.cuda.stream(0), machine.cuda.stream(priority)];
        // Both kernels wait for the device.
        machine.launch("block", machine.cuda.stream(0), [y; 2], machine.words(4));
        machine.launch("make", a, [y; 2], x);
        machine.launch("use", b, [x; 2], machine.words(4));
        let found = machine.conflicts();
        let order: Vec<_> = machine.cuda.timeline().into_iter().map(|(_, _, name)| name).collect();
        assert_eq!(order[1], if priority == 0 { "make" } else { "use" });
        found
    });
    assert_eq!(found.each_mut().map(|found| found.len()), [1, 1], "{found:?}");
    assert!(found[0][0].starts_with("kernel use") && found[1][0].starts_with("kernel make"), "{found:?}");
}

#[test]
fn concurrent_reads_and_concurrent_atomics_do_not_conflict() {
    let reads = conflicts_of(["a", "b"], |machine| {
        let x = machine.words(4);
        [([x; 2], machine.words(4)), ([x; 2], machine.words(4))]
    });
    assert!(reads.is_empty(), "{reads:?}");
    let atomics = |second| {
        conflicts_of(["atomic_a", second], |machine| {
            let x = machine.words(4);
            [([machine.words(4); 2], x), ([machine.words(4); 2], x)]
        })
    };
    assert!(atomics("atomic_b").is_empty());
    let found = atomics("plain");
    assert!(found[0].contains("writes") && found[0].contains("changes by atomic operations"), "{found:?}");
}

#[test]
fn disjoint_ranges_do_not_conflict() {
    let found = conflicts_of(["a", "b"], |machine| {
        let x = machine.words(8);
        let half = |from: u64| Words { address: x.address + from, count: 4 };
        [([half(0); 2], half(0)), ([half(16); 2], half(16))]
    });
    assert!(found.is_empty(), "{found:?}");
}

/// Follows the rules of the legacy default stream, which apply to blocking streams only.
#[test]
fn default_stream_orders_blocking_streams() {
    for (flags, waits, expected) in [(0, false, 0), (0, true, 0), (1, false, 1), (1, true, 0)] {
        let machine = Machine::new(["make", "use"]);
        let cuda = &machine.cuda;
        let stream: usize = cuda.make(|place| cuda.cuStreamCreateWithPriority(place, flags, 0));
        let x = machine.words(4);
        machine.launch("make", stream, [x; 2], x);
        // The rule also applies when the work has already ended.
        cuda.emulator.advance(std::time::Duration::from_secs(1));
        if waits {
            cuda.ok(cuda.cuStreamSynchronize(stream));
        }
        machine.launch("use", 0, [x; 2], machine.words(4));
        machine.launch("make", stream, [x; 2], machine.words(4));
        assert_eq!(machine.conflicts().len(), expected, "{flags}, {waits}");
    }
}

/// The driver cannot see synchronisation between host threads, so all threads share the knowledge
/// of waits.
#[test]
fn host_threads_share_waits_on_a_device() {
    let machine = Machine::new(["make", "use"]);
    let x = machine.words(4);
    let [a, b] = [machine.cuda.stream(0), machine.cuda.stream(0)];
    machine.launch("make", a, [x; 2], x);
    let context: usize = machine.cuda.make(|place| machine.cuda.cuCtxGetCurrent(place));
    let cuda = &machine.cuda;
    thread::scope(|scope| {
        scope.spawn(|| {
            cuda.ok(cuda.cuCtxSetCurrent(context));
            cuda.ok(cuda.cuStreamSynchronize(a));
        });
    });
    machine.launch("use", b, [x; 2], machine.words(4));
    assert!(machine.conflicts().is_empty());
}

#[test]
fn destroyed_streams_are_still_checked() {
    let run = |waits| {
        let machine = Machine::new(["make", "use"]);
        let x = machine.words(4);
        let stream = machine.cuda.stream(0);
        machine.launch("make", stream, [x; 2], x);
        machine.cuda.ok(machine.cuda.cuStreamDestroy_v2(stream));
        if waits {
            machine.cuda.ok(machine.cuda.cuCtxSynchronize());
        }
        machine.launch("use", machine.cuda.stream(0), [x; 2], machine.words(4));
        machine.conflicts().len()
    };
    assert_eq!([run(true), run(false)], [0, 1]);
}

#[test]
fn drop_wait_removes_one_wait() {
    let run = |dropped, twice: bool| {
        let machine = Machine::new(["make", "use"]);
        machine.cuda.emulator.set(Setting::DropWait, dropped);
        let x = machine.words(4);
        let [a, b] = [machine.cuda.stream(0), machine.cuda.stream(0)];
        machine.launch("make", a, [x; 2], x);
        machine.after(b, a);
        if twice {
            machine.after(b, a);
        }
        machine.launch("use", b, [x; 2], machine.words(4));
        let found = machine.conflicts().len();
        (found, machine.cuda.emulator.dropped_wait_is_needed())
    };
    assert_eq!(run(0, false), (0, None));
    assert_eq!(run(1, false), (1, Some(true)));
    // The other wait suffices.
    assert_eq!(run(2, true), (0, Some(false)));
    assert_eq!(run(3, true), (0, None));
}

#[test]
fn order_is_not_checked_by_default() {
    let machine = Machine::new(["make", "use"]);
    machine.cuda.emulator.set(Setting::OrderCheck, 0);
    let x = machine.words(4);
    for kernel in ["make", "use"] {
        machine.launch(kernel, machine.cuda.stream(0), [x; 2], x);
    }
    assert!(machine.conflicts().is_empty());
}
