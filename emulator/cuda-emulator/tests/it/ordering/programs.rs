//! Correct programs have no conflict, and removing any of their ordering edges is detected.

use super::{Machine, Words};
use std::cell::Cell;

/// The ordering edges of a program, of which one may be left out.
struct Edges {
    left_out: Option<usize>,
    seen: Cell<usize>,
}

impl Edges {
    /// Adds an ordering edge by `order`, unless it is to be left out.
    fn edge(&self, order: impl FnOnce()) {
        self.seen.set(self.seen.get() + 1);
        if self.left_out != Some(self.seen.get() - 1) {
            order();
        }
    }
}

type Program = fn(&Machine, &Edges);

/// Runs a program with all edges and without each of them. `pairs` names the conflicting tasks for
/// each edge.
fn check(kernels: &[&str], program: Program, pairs: &[[&str; 2]]) {
    for left_out in (0..=pairs.len()).map(|edge| edge.checked_sub(1)) {
        let machine = Machine::new(kernels.iter().copied());
        let edges = Edges { left_out, seen: Cell::new(0) };
        program(&machine, &edges);
        let found = machine.conflicts();
        assert_eq!(edges.seen.get(), pairs.len());
        match left_out {
            None => assert!(found.is_empty(), "{found:?}"),
            Some(edge) => {
                let names = |line: &&String| pairs[edge].iter().all(|name| line.contains(name));
                assert!(found.iter().any(|line| names(&line)), "without edge {edge}: {found:?}");
            }
        }
    }
}

#[test]
fn two_streams_with_an_event() {
    let program: Program = |machine, edges| {
        let [a, b] = [machine.cuda.stream(0), machine.cuda.stream(0)];
        let [x, y] = [machine.words(8), machine.words(8)];
        machine.launch("make", a, [y; 2], x);
        edges.edge(|| machine.after(b, a));
        machine.launch("use", b, [x; 2], y);
        // A write must also wait for earlier reads.
        edges.edge(|| machine.after(a, b));
        machine.launch("remake", a, [x; 2], x);
    };
    check(
        &["make", "use", "remake"],
        program,
        &[
            ["kernel make in stream 1 of device 0", "kernel use in stream 2 of device 0"],
            ["kernel use in stream 2 of device 0", "kernel remake in stream 1 of device 0"],
        ],
    );
}

#[test]
fn diamond_graph() {
    let program: Program = |machine, edges| {
        let cuda = &machine.cuda;
        let [x, y, z] = [machine.words(4), machine.words(4), machine.words(4)];
        let graph = cuda.graph();
        let top = machine.kernel_node(graph, "top", [x; 2], x);
        let left = machine.kernel_node(graph, "left", [x; 2], y);
        let right = machine.kernel_node(graph, "right", [x; 2], z);
        let bottom = machine.kernel_node(graph, "bottom", [y, z], y);
        for (from, to) in [(top, left), (top, right), (left, bottom), (right, bottom)] {
            edges.edge(|| cuda.ok(cuda.cuGraphAddDependencies(graph, &raw const from, &raw const to, 1)));
        }
        let exec = cuda.instantiated(graph);
        let [a, b] = [cuda.stream(0), cuda.stream(0)];
        machine.launch("before", a, [x; 2], x);
        cuda.ok(cuda.cuGraphLaunch(exec, a));
        machine.launch("after", a, [x, y], z);
        edges.edge(|| machine.after(b, a));
        // Launches of one executable graph are ordered without an edge.
        cuda.ok(cuda.cuGraphLaunch(exec, b));
    };
    check(
        &["before", "top", "left", "right", "bottom", "after"],
        program,
        &[
            ["kernel top", "kernel left"],
            ["kernel top", "kernel right"],
            ["kernel left", "kernel bottom"],
            ["kernel right", "kernel bottom"],
            ["kernel after in stream 1", "in stream 2"],
        ],
    );
}

#[test]
fn captured_graph_of_two_streams() {
    let program: Program = |machine, edges| {
        let cuda = &machine.cuda;
        let [a, b, c] = [cuda.stream(0), cuda.stream(0), cuda.stream(0)];
        let [x, y] = [machine.words(4), machine.words(4)];
        cuda.ok(cuda.cuStreamBeginCapture_v2(a, 1));
        let fork = cuda.event();
        cuda.ok(cuda.cuEventRecord(fork, a));
        cuda.ok(cuda.cuStreamWaitEvent(b, fork, 0));
        machine.launch("make", a, [y; 2], x);
        edges.edge(|| machine.after(b, a));
        machine.launch("use", b, [x; 2], y);
        machine.after(a, b);
        let graph = cuda.make(|place| cuda.cuStreamEndCapture(a, place));
        cuda.ok(cuda.cuGraphLaunch(cuda.instantiated(graph), c));
    };
    check(&["make", "use"], program, &[["kernel make in stream 3", "kernel use in stream 3"]]);
}

#[test]
fn host_waits_between_streams() {
    /// Waits on the host until a stream is done, by the method with the given number.
    fn wait(machine: &Machine, stream: usize, method: u32) {
        let cuda = &machine.cuda;
        let event = cuda.event();
        cuda.ok(cuda.cuEventRecord(event, stream));
        match method {
            0 => cuda.ok(cuda.cuStreamSynchronize(stream)),
            1 => cuda.ok(cuda.cuCtxSynchronize()),
            2 => cuda.ok(cuda.cuEventSynchronize(event)),
            3 => while cuda.cuStreamQuery(stream) != 0 {},
            4 => while cuda.cuEventQuery(event) != 0 {},
            _ => {
                // The host waits for copies to pageable memory.
                let (words, mut there) = (machine.words(1), 0_u32);
                let to = (&raw mut there).cast();
                cuda.ok(cuda.cuMemcpyDtoHAsync_v2(to, words.address, 4, stream));
            }
        }
    }
    fn program<const METHOD: u32>(machine: &Machine, edges: &Edges) {
        let [a, b] = [machine.cuda.stream(0), machine.cuda.stream(0)];
        let x = machine.words(4);
        machine.launch("make", a, [x; 2], x);
        edges.edge(|| wait(machine, a, METHOD));
        machine.launch("use", b, [x; 2], machine.words(4));
    }
    for program in [program::<0>, program::<1>, program::<2>, program::<3>, program::<4>, program::<5>] {
        check(&["make", "use"], program, &[["kernel make", "kernel use"]]);
    }
}

#[test]
fn copies_in_separate_streams() {
    let program: Program = |machine, edges| {
        let cuda = &machine.cuda;
        let [copies_in, compute, copies_out] = [cuda.stream(0), cuda.stream(0), cuda.stream(0)];
        let [given, got] = [machine.page_locked(4), machine.page_locked(4)];
        let [x, y] = [machine.words(4), machine.words(4)];
        let upload = || {
            let from = given.address as *const u8;
            cuda.ok(cuda.cuMemcpyHtoDAsync_v2(x.address, from, x.bytes(), copies_in));
        };
        upload();
        edges.edge(|| machine.after(compute, copies_in));
        machine.launch("work", compute, [x; 2], y);
        edges.edge(|| machine.after(copies_out, compute));
        let to = got.address as *mut u8;
        cuda.ok(cuda.cuMemcpyDtoHAsync_v2(to, y.address, y.bytes(), copies_out));
        edges.edge(|| machine.after(copies_in, compute));
        upload();
        edges.edge(|| machine.after(compute, copies_out));
        machine.launch("clear", compute, [y; 2], y);
        // The upload must also wait for the copy that reads the same words.
        edges.edge(|| machine.after(copies_in, copies_out));
        cuda.ok(cuda.cuMemcpyHtoDAsync_v2(x.address, got.address as *const u8, x.bytes(), copies_in));
    };
    check(
        &["work", "clear"],
        program,
        &[
            ["a copy in stream 1", "kernel work in stream 2"],
            ["kernel work in stream 2", "a copy in stream 3"],
            ["kernel work in stream 2", "a copy in stream 1"],
            ["a copy in stream 3", "kernel clear in stream 2"],
            ["a copy in stream 3", "a copy in stream 1"],
        ],
    );
}

#[test]
fn stream_ordered_allocations() {
    let program: Program = |machine, edges| {
        let cuda = &machine.cuda;
        let [a, b] = [cuda.stream(0), cuda.stream(0)];
        let address = cuda.make(|place| cuda.cuMemAllocAsync(place, 16, b));
        let x = Words { address, count: 4 };
        edges.edge(|| machine.after(a, b));
        machine.launch("work", a, [x; 2], x);
        // The kernel has ended, but no call has told the host.
        cuda.emulator.advance(std::time::Duration::from_secs(1));
        edges.edge(|| machine.after(b, a));
        cuda.ok(cuda.cuMemFreeAsync(address, b));
    };
    check(
        &["work"],
        program,
        &[
            ["kernel work in stream 1", "cuMemAllocAsync in stream 2"],
            ["kernel work in stream 1", "cuMemFreeAsync in stream 2 of device 0 frees"],
        ],
    );
}

#[test]
fn waits_for_values_in_memory() {
    let program: Program = |machine, edges| {
        let cuda = &machine.cuda;
        let [a, b] = [cuda.stream(0), cuda.stream(0)];
        let [x, flag] = [machine.words(4), machine.words(1)];
        machine.launch("make", a, [x; 2], x);
        cuda.ok(cuda.cuStreamWriteValue32_v2(a, flag.address, 1, 0));
        edges.edge(|| cuda.ok(cuda.cuStreamWaitValue32_v2(b, flag.address, 1, 1)));
        machine.launch("use", b, [x; 2], machine.words(4));
        cuda.ok(cuda.cuStreamWriteValue32_v2(b, flag.address, 0, 0));
    };
    check(&["make", "use"], program, &[["kernel make", "kernel use"]]);
}
