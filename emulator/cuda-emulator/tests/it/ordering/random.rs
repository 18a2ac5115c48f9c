//! Random programs: the check agrees with the transitive closure of all ordering edges.

use super::{Machine, Words};
use proptest::prelude::*;
use std::{
    collections::{BTreeMap, BTreeSet},
    env,
};

const BUFFERS: usize = 3;
const WORDS: u64 = 8;
const EVENTS: usize = 3;

/// Streams: two non-blocking ones, a blocking one and the default stream.
const STREAMS: usize = 4;
const BLOCKING: usize = 2;
const DEFAULT: usize = 3;

fn programs() -> u32 {
    env::var("EMULATOR_ORDER_PROGRAMS").ok().and_then(|count| count.parse().ok()).unwrap_or(150)
}

/// Words of a buffer.
#[derive(Debug, Clone, Copy)]
struct Span {
    buffer: usize,
    first: u64,
    count: u64,
}

#[derive(Debug, Clone)]
struct Kernel {
    from: [Span; 2],
    to: Span,
    atomic: bool,
}

#[derive(Debug, Clone)]
enum Call {
    Launch {
        stream: usize,
        kernel: Kernel,
    },
    Copy {
        stream: usize,
        from: Span,
        to: Span,
    },
    Record {
        stream: usize,
        event: usize,
    },
    Wait {
        stream: usize,
        event: usize,
    },
    /// A graph of kernels, each with flags for its dependencies on earlier ones, launched in the
    /// given streams.
    Graph {
        nodes: Vec<(Kernel, Vec<bool>)>,
        streams: Vec<usize>,
    },
    Synchronize {
        stream: usize,
    },
    Query {
        stream: usize,
    },
    SynchronizeEvent {
        event: usize,
    },
    SynchronizeAll,
}

/// Returns spans of equal length.
fn spans<const N: usize>() -> impl Strategy<Value = [Span; N]> {
    (1..=WORDS, prop::array::uniform((0..BUFFERS, 0..WORDS))).prop_map(|(count, places): (u64, [_; N])| {
        let largest = places.iter().map(|(_, first)| *first).max().unwrap_or(0);
        let count = count.min(WORDS - largest);
        places.map(|(buffer, first)| Span { buffer, first, count })
    })
}

fn kernel() -> impl Strategy<Value = Kernel> {
    (spans(), prop::bool::weighted(0.2)).prop_map(|([a, b, to], atomic)| Kernel { from: [a, b], to, atomic })
}

fn call() -> impl Strategy<Value = Call> {
    let (stream, event) = (0..STREAMS, 0..EVENTS);
    let node = (kernel(), prop::collection::vec(any::<bool>(), 4));
    prop_oneof![
        6 => (stream.clone(), kernel()).prop_map(|(stream, kernel)| Call::Launch { stream, kernel }),
        2 => (stream.clone(), spans()).prop_map(|(stream, [from, to])| Call::Copy { stream, from, to }),
        6 => (stream.clone(), event.clone()).prop_map(|(stream, event)| Call::Record { stream, event }),
        6 => (stream.clone(), event.clone()).prop_map(|(stream, event)| Call::Wait { stream, event }),
        2 => (prop::collection::vec(node, 1..5), prop::collection::vec(stream.clone(), 1..3))
            .prop_map(|(nodes, streams)| Call::Graph { nodes, streams }),
        1 => stream.clone().prop_map(|stream| Call::Synchronize { stream }),
        1 => stream.prop_map(|stream| Call::Query { stream }),
        1 => event.prop_map(|event| Call::SynchronizeEvent { event }),
        1 => Just(Call::SynchronizeAll),
    ]
}

/// A use of memory: `r` for a read, `w` for a write, `a` for an atomic operation.
type Use = (Span, char);

fn in_conflict((a, by): &Use, (b, and): &Use) -> bool {
    let meet = a.buffer == b.buffer && a.first < b.first + b.count && b.first < a.first + a.count;
    meet && !matches!((by, and), ('r', 'r') | ('a', 'a'))
}

impl Kernel {
    fn uses(&self) -> Vec<Use> {
        let [a, b] = self.from;
        vec![(a, 'r'), (b, 'r'), (self.to, if self.atomic { 'a' } else { 'w' })]
    }
}

/// Reference model: all work and all waits of the host, with ordering edges.
#[derive(Default)]
struct Oracle {
    work: Vec<(String, Vec<Use>)>,
    edges: Vec<(usize, usize)>,
    /// The last work of each stream, the last record of each event, and the last wait of the host.
    last: [Option<usize>; STREAMS],
    recorded: [Option<usize>; EVENTS],
    host: Option<usize>,
}

impl Oracle {
    fn add(
        &mut self,
        label: String,
        uses: Vec<Use>,
        before: impl IntoIterator<Item = Option<usize>>,
    ) -> usize {
        let place = self.work.len();
        self.work.push((label, uses));
        self.edges.extend(before.into_iter().flatten().map(|earlier| (earlier, place)));
        place
    }

    /// Adds the next work of a stream.
    fn enqueue(&mut self, stream: usize, label: String, uses: Vec<Use>, also: Option<usize>) -> usize {
        let by_rule = match stream {
            BLOCKING => self.last[DEFAULT],
            DEFAULT => self.last[BLOCKING],
            _ => None,
        };
        let before = [self.last[stream], self.host, by_rule, also];
        let place = self.add(label, uses, before);
        self.last[stream] = Some(place);
        place
    }

    fn host_waits(&mut self, done: impl IntoIterator<Item = Option<usize>>) {
        let host = self.host;
        self.host = Some(self.add(String::new(), Vec::new(), done.into_iter().chain([host])));
    }

    /// Returns the sorted pairs of labels that conflict, with the buffers.
    fn conflicts(&self) -> BTreeSet<([String; 2], usize)> {
        let count = self.work.len();
        let mut before = vec![vec![false; count]; count];
        self.edges.iter().for_each(|&(from, to)| before[from][to] = true);
        for middle in 0..count {
            for from in 0..count {
                if before[from][middle] {
                    let later = before[middle].clone();
                    before[from].iter_mut().zip(later).for_each(|(known, later)| *known |= later);
                }
            }
        }
        let mut found = BTreeSet::new();
        for (a, (label, uses)) in self.work.iter().enumerate() {
            for (b, (other, others)) in self.work.iter().enumerate().skip(a + 1) {
                for one in uses.iter().filter(|_| !before[a][b] && !before[b][a]) {
                    if others.iter().any(|other| in_conflict(one, other)) {
                        let mut labels = [label.clone(), other.clone()];
                        labels.sort_unstable();
                        found.insert((labels, one.0.buffer));
                    }
                }
            }
        }
        found
    }
}

/// Parses a line of the report.
fn parsed(line: &str, buffers: &[Words]) -> ([String; 2], usize) {
    let (later, rest) = line.split_once(", which ").unwrap();
    let label = |text: &str| text.split_once(" of device 0").unwrap().0.to_owned();
    let mut labels = [label(later), label(rest)];
    labels.sort_unstable();
    let (_, address) = later.rsplit_once(" at 0x").unwrap();
    let address = u64::from_str_radix(address, 16).unwrap();
    (labels, buffers.iter().position(|buffer| buffer.address == address).unwrap())
}

/// Executes calls on the emulator and on the reference model.
struct Run {
    machine: Machine,
    oracle: Oracle,
    buffers: Vec<Words>,
    streams: [usize; STREAMS],
    events: Vec<usize>,
}

impl Run {
    fn words(&self, span: Span) -> Words {
        Words { address: self.buffers[span.buffer].address + 4 * span.first, count: span.count }
    }

    fn label(stream: usize, what: &str) -> String {
        format!("{what} in stream {}", stream + 1)
    }

    fn call(&mut self, number: usize, call: &Call) {
        let cuda = &self.machine.cuda;
        match call {
            Call::Launch { stream, kernel } => {
                let (name, from) = (name(number, 0, kernel), kernel.from.map(|from| self.words(from)));
                self.machine.launch(&name, self.streams[*stream], from, self.words(kernel.to));
                let label = Self::label(*stream, &format!("kernel {name}"));
                self.oracle.enqueue(*stream, label, kernel.uses(), None);
            }
            Call::Copy { stream, from, to } => {
                self.machine.copy(self.streams[*stream], self.words(*from), self.words(*to));
                let uses = vec![(*from, 'r'), (*to, 'w')];
                self.oracle.enqueue(*stream, Self::label(*stream, "a copy"), uses, None);
            }
            Call::Record { stream, event } => {
                cuda.ok(cuda.cuEventRecord(self.events[*event], self.streams[*stream]));
                let place = self.oracle.enqueue(*stream, String::new(), Vec::new(), None);
                self.oracle.recorded[*event] = Some(place);
            }
            Call::Wait { stream, event } => {
                cuda.ok(cuda.cuStreamWaitEvent(self.streams[*stream], self.events[*event], 0));
                if let Some(record) = self.oracle.recorded[*event] {
                    self.oracle.enqueue(*stream, String::new(), Vec::new(), Some(record));
                }
            }
            Call::Graph { nodes, streams } => self.graph(number, nodes, streams),
            Call::Synchronize { stream } => {
                cuda.ok(cuda.cuStreamSynchronize(self.streams[*stream]));
                self.oracle.host_waits([self.oracle.last[*stream]]);
            }
            Call::Query { stream } => {
                if cuda.cuStreamQuery(self.streams[*stream]) == 0 {
                    self.oracle.host_waits([self.oracle.last[*stream]]);
                }
            }
            Call::SynchronizeEvent { event } => {
                cuda.ok(cuda.cuEventSynchronize(self.events[*event]));
                self.oracle.host_waits([self.oracle.recorded[*event]]);
            }
            Call::SynchronizeAll => {
                cuda.ok(cuda.cuCtxSynchronize());
                self.oracle.host_waits(self.oracle.last);
            }
        }
    }

    fn graph(&mut self, number: usize, nodes: &[(Kernel, Vec<bool>)], streams: &[usize]) {
        let cuda = &self.machine.cuda;
        let graph = cuda.graph();
        let mut handles = Vec::new();
        for (index, (kernel, after)) in nodes.iter().enumerate() {
            let from = kernel.from.map(|from| self.words(from));
            let name = name(number, index, kernel);
            let node = self.machine.kernel_node(graph, &name, from, self.words(kernel.to));
            for before in handles.iter().zip(after).filter(|(_, after)| **after).map(|(before, _)| before) {
                cuda.ok(cuda.cuGraphAddDependencies(graph, &raw const *before, &raw const node, 1));
            }
            handles.push(node);
        }
        let exec = cuda.instantiated(graph);
        let mut launch_before = None;
        for &stream in streams {
            cuda.ok(cuda.cuGraphLaunch(exec, self.streams[stream]));
            let start = self.oracle.enqueue(stream, String::new(), Vec::new(), launch_before);
            let mut places: Vec<usize> = Vec::new();
            for (index, (kernel, after)) in nodes.iter().enumerate() {
                let label = Self::label(stream, &format!("kernel {}", name(number, index, kernel)));
                let before =
                    places.iter().zip(after).filter(|(_, after)| **after).map(|(place, _)| Some(*place));
                let before: Vec<_> = before.chain([Some(start)]).collect();
                places.push(self.oracle.add(label, kernel.uses(), before));
            }
            let end = self.oracle.add(String::new(), Vec::new(), places.into_iter().map(Some));
            self.oracle.last[stream] = Some(end);
            launch_before = Some(end);
        }
    }
}

fn name(number: usize, node: usize, kernel: &Kernel) -> String {
    format!("{}_{number}_{node}", if kernel.atomic { "atomic" } else { "plain" })
}

fn check(calls: &[Call]) -> Result<usize, TestCaseError> {
    let names = calls.iter().enumerate().flat_map(|(number, call)| match call {
        Call::Launch { kernel, .. } => vec![name(number, 0, kernel)],
        Call::Graph { nodes, .. } => {
            nodes.iter().enumerate().map(|(index, (kernel, _))| name(number, index, kernel)).collect()
        }
        _ => Vec::new(),
    });
    let names: Vec<_> = names.chain(["plain".to_owned()]).collect();
    let machine = Machine::new(names.iter().map(String::as_str));
    let cuda = &machine.cuda;
    let streams = [1, 1, 0].map(|flags| cuda.make(|place| cuda.cuStreamCreateWithPriority(place, flags, 0)));
    // The default stream becomes stream 4.
    cuda.ok(cuda.cuStreamQuery(0));
    let buffers: Vec<_> = (0..BUFFERS).map(|_| machine.words(WORDS)).collect();
    let events = (0..EVENTS).map(|_| cuda.event()).collect();
    let streams = [streams[0], streams[1], streams[2], 0];
    let mut run = Run { machine, oracle: Oracle::default(), buffers, streams, events };
    calls.iter().enumerate().for_each(|(number, call)| run.call(number, call));

    let (lines, expected) = (run.machine.conflicts(), run.oracle.conflicts());
    let mut found: BTreeMap<usize, usize> = BTreeMap::new();
    for line in &lines {
        let pair = parsed(line, &run.buffers);
        prop_assert!(expected.contains(&pair), "{} is ordered: {:#?}", line, expected);
        *found.entry(pair.1).or_default() += 1;
    }
    // The check finds the first conflicts of each buffer. They may hide later ones.
    for (pair, buffer) in &expected {
        prop_assert!(found.contains_key(buffer), "{:?} is not found in buffer {}", pair, buffer);
    }
    Ok(expected.len())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(programs()))]

    #[test]
    fn conflicts_match_the_transitive_closure(calls in prop::collection::vec(call(), 2..24)) {
        check(&calls)?;
    }
}
