//! Objects are dropped in random orders, with work that uses them in flight, and nothing accesses
//! freed memory.
//!
//! Kernels are executed from their PTX, and a model computes the same values. All work is ordered
//! by one event, so that the values are known; the host waits only where a destructor does.
#![allow(unsafe_code)]

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use cuda::{
    Argument, Buffer, CapturedGraph, Context, Error, Event, Executable, Kernel, LaunchShape, MergeLimits,
    MergedGraph, Module, Priority, Result, Stream, TimingRuns,
};
use cuda_emulator::{Emulator, Setting};
use proptest::prelude::*;
use proptest::sample::Index;

use super::open;

/// `value = value / 2 + number`, which depends on the order of the steps.
const STEP: &str = ".version 8.0\n.target sm_80\n.address_size 64
.visible .entry step(.param .u64 address, .param .f32 number)
{
    .reg .u64 %address;
    .reg .f32 %value, %number;
    ld.param.u64 %address, [address];
    ld.param.f32 %number, [number];
    ld.global.f32 %value, [%address];
    mul.rn.f32 %value, %value, 0f3F000000;
    add.rn.f32 %value, %value, %number;
    st.global.f32 [%address], %value;
    ret;
}
";

/// Number of elements of a buffer.
const ELEMENTS: usize = 2;
/// Maximum number of operations of a graph.
const MAX_OPERATIONS: usize = 12;

/// Operation on buffers, which are chosen from those that exist.
#[derive(Debug, Clone, Copy)]
enum Choice {
    Step { kernel: Index, buffer: Index, element: usize, number: u8 },
    Copy { to: Index, from: Index },
    Clear(Index),
}

/// Action of the test. One for which there is no object does nothing.
#[derive(Debug, Clone)]
enum Action {
    /// Allocates a buffer, in the order of a stream or not.
    Allocate {
        in_stream: bool,
        value: u8,
    },
    Load,
    CreateStream,
    Enqueue(Index, Choice),
    /// Captures operations from one stream, or the second half of them from another one.
    Capture {
        streams: [Index; 2],
        choices: Vec<Choice>,
    },
    Chain([Index; 2]),
    Merge([Index; 2]),
    Cut(Index, Index),
    Instantiate(Index),
    Launch {
        executable: Index,
        stream: Index,
    },
    Read(Index, Index),
    Advance(u8),
    Drop(Kind, Index),
}

/// Kind of an object that is dropped.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Buffer,
    Kernel,
    Stream,
    Graph,
    Executable,
}

fn choices() -> impl Strategy<Value = Choice> {
    let index = any::<Index>;
    prop_oneof![
        4 => (index(), index(), 0..ELEMENTS, 1_u8..9)
            .prop_map(|(kernel, buffer, element, number)| Choice::Step { kernel, buffer, element, number }),
        2 => (index(), index()).prop_map(|(to, from)| Choice::Copy { to, from }),
        1 => index().prop_map(Choice::Clear),
    ]
}

fn actions() -> impl Strategy<Value = Action> {
    let index = any::<Index>;
    let pair = || [index(), index()];
    let kind = prop_oneof![
        3 => Just(Kind::Buffer),
        2 => Just(Kind::Kernel),
        1 => Just(Kind::Stream),
        2 => Just(Kind::Graph),
        2 => Just(Kind::Executable),
    ];
    prop_oneof![
        3 => (any::<bool>(), any::<u8>())
            .prop_map(|(in_stream, value)| Action::Allocate { in_stream, value }),
        2 => Just(Action::Load),
        1 => Just(Action::CreateStream),
        2 => (index(), choices()).prop_map(|(stream, choice)| Action::Enqueue(stream, choice)),
        4 => (pair(), prop::collection::vec(choices(), 1..5))
            .prop_map(|(streams, choices)| Action::Capture { streams, choices }),
        2 => pair().prop_map(Action::Chain),
        2 => pair().prop_map(Action::Merge),
        3 => (index(), index()).prop_map(|(graph, stream)| Action::Cut(graph, stream)),
        3 => index().prop_map(Action::Instantiate),
        6 => (index(), index()).prop_map(|(executable, stream)| Action::Launch { executable, stream }),
        1 => (index(), index()).prop_map(|(buffer, stream)| Action::Read(buffer, stream)),
        1 => any::<u8>().prop_map(Action::Advance),
        8 => (kind, index()).prop_map(|(kind, index)| Action::Drop(kind, index)),
    ]
}

/// Operation on memory, which is numbered in the order of allocation.
#[derive(Debug, Clone, Copy)]
enum Operation {
    Step { memory: usize, element: usize, number: f32 },
    Copy { to: usize, from: usize },
    Clear(usize),
}

/// Content of all memory, also of freed memory, after the enqueued work. An element is `None` if it
/// is unknown: a graph was timed that changes it.
#[derive(Debug, Default)]
struct Model(Vec<[Option<f32>; ELEMENTS]>);

impl Model {
    fn run(&mut self, operations: impl IntoIterator<Item = Operation>) {
        for operation in operations {
            match operation {
                Operation::Step { memory, element, number } => {
                    let value = &mut self.0[memory][element];
                    *value = value.map(|value| value * 0.5 + number);
                }
                Operation::Copy { to, from } => self.0[to] = self.0[from],
                Operation::Clear(memory) => self.0[memory] = [Some(0.0); ELEMENTS],
            }
        }
    }
}

/// Buffer with the number of its memory.
type Numbered = (Buffer<f32>, usize);

/// Objects that exist, and the model.
struct World<'a> {
    emulator: &'a Emulator,
    context: Context,
    /// Stream in whose order memory is allocated and freed.
    pool: Stream,
    /// Recorded after all work.
    last: Event,
    buffers: Vec<Numbered>,
    kernels: Vec<Kernel>,
    streams: Vec<Stream>,
    /// Captured graphs with the operations of each of their nodes.
    graphs: Vec<(CapturedGraph, Vec<Vec<Operation>>)>,
    executables: Vec<(Arc<Executable>, Vec<Operation>)>,
    model: Model,
}

impl<'a> World<'a> {
    fn new(emulator: &'a Emulator, context: Context) -> Result<Self> {
        let pool = Stream::new(&context, Priority::Background)?;
        let last = Event::untimed(&pool)?;
        pool.record(&last)?;
        Ok(Self {
            emulator,
            context,
            pool,
            last,
            buffers: Vec::new(),
            kernels: Vec::new(),
            streams: Vec::new(),
            graphs: Vec::new(),
            executables: Vec::new(),
            model: Model::default(),
        })
    }

    /// Takes an action, or returns `None` if there is no object for it.
    fn take(&mut self, action: &Action) -> Option<Result<()>> {
        Some(match *action {
            Action::Allocate { in_stream, value } => self.allocate(in_stream, f32::from(value)),
            Action::Load => Module::load(&self.context, STEP)
                .and_then(|module| module.kernel("step"))
                .map(|kernel| self.kernels.push(kernel)),
            Action::CreateStream => {
                Stream::new(&self.context, Priority::Background).map(|stream| self.streams.push(stream))
            }
            Action::Enqueue(stream, choice) => {
                let stream = pick(&self.streams, stream)?;
                let (launch, operation) = self.operation(choice)?;
                let enqueued = in_order(&self.last, stream, launch);
                self.model.run([operation]);
                enqueued
            }
            Action::Capture { streams, ref choices } => {
                let [stream, side] = [pick(&self.streams, streams[0])?, pick(&self.streams, streams[1])?];
                let chosen: Option<Vec<_>> = choices.iter().map(|choice| self.operation(*choice)).collect();
                let (launches, operations): (Vec<_>, Vec<_>) = chosen?.into_iter().unzip();
                let graph = capture(stream, side, &launches);
                drop(launches);
                let nodes = operations.into_iter().map(|operation| vec![operation]).collect();
                graph.map(|graph| self.graphs.push((graph, nodes)))
            }
            Action::Chain(pair) => {
                let [(first, of_first), (second, of_second)] =
                    [pick(&self.graphs, pair[0])?, pick(&self.graphs, pair[1])?];
                let nodes = vec![of_first.concat(), of_second.concat()];
                if nodes.concat().len() > MAX_OPERATIONS {
                    return None;
                }
                CapturedGraph::chain([first, second]).map(|chain| self.graphs.push((chain, nodes)))
            }
            Action::Merge(pair) => self.merge(pair)?,
            Action::Cut(graph, stream) => self.cut(graph, stream)?,
            Action::Instantiate(graph) => {
                let (graph, nodes) = pick(&self.graphs, graph)?;
                let operations = nodes.concat();
                graph.instantiate().map(|graph| self.executables.push((Arc::new(graph), operations)))
            }
            Action::Launch { executable, stream } => {
                let (executable, operations) = pick(&self.executables, executable)?;
                let stream = pick(&self.streams, stream)?;
                self.model.run(operations.iter().copied());
                in_order(&self.last, stream, |stream| executable.launch(stream))
            }
            Action::Read(buffer, stream) => {
                self.read(pick(&self.buffers, buffer)?, pick(&self.streams, stream)?)
            }
            Action::Advance(micros) => {
                self.emulator.advance(Duration::from_micros(micros.into()));
                Ok(())
            }
            Action::Drop(kind, index) => {
                // Memory that was allocated in a stream is freed in the order of that stream.
                self.pool.wait_for(&self.last).map(|()| self.drop_one(kind, index))
            }
        })
    }

    fn allocate(&mut self, in_stream: bool, value: f32) -> Result<()> {
        let values = [value; ELEMENTS];
        let buffer = if in_stream {
            let buffer = Buffer::in_stream(&self.pool, ELEMENTS)?;
            buffer.upload(&self.pool, &values)?;
            buffer
        } else {
            Buffer::from_slice(&self.context, &values)?
        };
        self.buffers.push((buffer, self.model.0.len()));
        self.model.0.push(values.map(Some));
        Ok(())
    }

    /// Returns a function that enqueues an operation, and the operation.
    fn operation(&self, of: Choice) -> Option<(impl Fn(&Stream) -> Result<()> + use<'_, 'a>, Operation)> {
        let buffer = |index: Index| pick(&self.buffers, index);
        let (kernel, [to, from], operation) = match of {
            Choice::Step { kernel, buffer: index, element, number } => {
                let (kernel, to) = (pick(&self.kernels, kernel)?, buffer(index)?);
                let (memory, number) = (to.1, f32::from(number));
                (Some(kernel), [to, to], Operation::Step { memory, element, number })
            }
            Choice::Copy { to, from } => {
                let [to, from] = [buffer(to)?, buffer(from)?];
                if to.1 == from.1 {
                    return None;
                }
                (None, [to, from], Operation::Copy { to: to.1, from: from.1 })
            }
            Choice::Clear(index) => (None, [buffer(index)?; 2], Operation::Clear(buffer(index)?.1)),
        };
        let launch = move |stream: &Stream| match (operation, kernel) {
            (Operation::Step { element, number, .. }, Some(kernel)) => {
                let arguments = [Argument::element(&to.0, element), number.into()];
                // SAFETY: the arguments match the kernel, which accesses one element of the buffer.
                unsafe { kernel.launch(stream, LaunchShape::linear(1, 1), &arguments) }
            }
            (Operation::Copy { .. }, _) => to.0.enqueue_copy(stream, 0, &from.0, 0..ELEMENTS),
            _ => to.0.fill_bytes(stream, 0),
        };
        Some((launch, operation))
    }

    fn merge(&mut self, pair: [Index; 2]) -> Option<Result<()>> {
        if self.graphs.len() < 2 {
            return None;
        }
        let (first, of_first) = self.graphs.swap_remove(pair[0].index(self.graphs.len()));
        let (second, of_second) = self.graphs.swap_remove(pair[1].index(self.graphs.len()));
        let operations = [of_first.concat(), of_second.concat()].concat();
        let graphs = [(first, Duration::ZERO), (second, Duration::ZERO)];
        let merged = MergedGraph::merge_consecutive(&graphs, MergeLimits::default());
        let [(first, _), (second, _)] = graphs;
        self.graphs.extend([(first, of_first), (second, of_second)]);
        Some(merged.map(|merged| {
            assert_eq!(merged.len(), 1);
            self.executables.push((Arc::clone(&merged[0].executable), operations));
        }))
    }

    /// Cuts a graph into pieces. Buffers that exist are restored.
    fn cut(&mut self, graph: Index, stream: Index) -> Option<Result<()>> {
        let ((graph, nodes), stream) = (pick(&self.graphs, graph)?, pick(&self.streams, stream)?);
        let restored: Vec<_> = self.buffers.iter().map(|(buffer, _)| buffer).collect();
        let runs = TimingRuns::restoring(NonZeroUsize::MIN, &restored);
        let cut = in_order(&self.last, stream, |stream| graph.cut(stream, Duration::from_micros(25), runs));
        let changed = nodes.concat().into_iter().map(|operation| match operation {
            Operation::Step { memory, .. }
            | Operation::Copy { to: memory, .. }
            | Operation::Clear(memory) => memory,
        });
        for memory in changed.filter(|memory| self.buffers.iter().all(|(_, number)| number != memory)) {
            self.model.0[memory] = [None; ELEMENTS];
        }
        Some(cut.map(|cut| {
            let pieces = cut.pieces.into_iter();
            self.executables.extend(pieces.map(|piece| (piece.executable, nodes[piece.nodes].concat())));
        }))
    }

    /// Compares a buffer with the model.
    fn read(&self, (buffer, memory): &Numbered, stream: &Stream) -> Result<()> {
        let found = in_order(&self.last, stream, |stream| buffer.to_vec(stream))?;
        for (found, expected) in found.into_iter().zip(self.model.0[*memory]) {
            assert!(
                expected.is_none_or(|expected| found.to_bits() == expected.to_bits()),
                "{found} {expected:?}"
            );
        }
        Ok(())
    }

    fn drop_one(&mut self, kind: Kind, index: Index) {
        fn drop_at<T>(all: &mut Vec<T>, index: Index) {
            if !all.is_empty() {
                all.swap_remove(index.index(all.len()));
            }
        }
        match kind {
            Kind::Buffer => drop_at(&mut self.buffers, index),
            Kind::Kernel => drop_at(&mut self.kernels, index),
            Kind::Stream => drop_at(&mut self.streams, index),
            Kind::Graph => drop_at(&mut self.graphs, index),
            Kind::Executable => drop_at(&mut self.executables, index),
        }
    }
}

fn pick<T>(all: &[T], index: Index) -> Option<&T> {
    (!all.is_empty()).then(|| index.get(all))
}

/// Enqueues work behind all earlier work, and records its end.
fn in_order<T>(last: &Event, stream: &Stream, enqueue: impl FnOnce(&Stream) -> Result<T>) -> Result<T> {
    stream.wait_for(last)?;
    let enqueued = enqueue(stream)?;
    stream.record(last)?;
    Ok(enqueued)
}

/// Captures launches in their order, the second half from a stream that joins the capture.
fn capture(
    stream: &Stream,
    side: &Stream,
    launches: &[impl Fn(&Stream) -> Result<()>],
) -> Result<CapturedGraph> {
    let (fork, join) = (Event::untimed(stream)?, Event::untimed(stream)?);
    stream.capture(|stream| {
        let (first, second) = launches.split_at(launches.len() / 2);
        first.iter().try_for_each(|launch| launch(stream))?;
        stream.record(&fork)?;
        side.wait_for(&fork)?;
        second.iter().try_for_each(|launch| launch(side))?;
        side.record(&join)?;
        stream.wait_for(&join)?;
        Ok::<_, Error>(())
    })
}

fn run(actions: &[Action]) {
    let emulator = Emulator::new().unwrap();
    emulator.set(Setting::OrderCheck, 1);
    emulator.set(Setting::UninitialisedCheck, 1);
    let context = open();
    let mut world = World::new(&emulator, context.clone()).unwrap();
    for _ in 0..2 {
        let begin = [Action::Allocate { in_stream: false, value: 1 }, Action::Load, Action::CreateStream];
        for action in &begin {
            world.take(action).unwrap().unwrap();
        }
    }
    for action in actions {
        if let Some(taken) = world.take(action) {
            taken.unwrap();
        }
    }
    let pool = world.pool.clone();
    world.buffers.iter().for_each(|buffer| world.read(buffer, &pool).unwrap());
    pool.wait_for(&world.last).unwrap();
    drop((world, pool));
    let closed = context.close();
    assert_eq!(emulator.faults(), [""; 0]);
    assert_eq!(emulator.misuse(), [""; 0]);
    assert_eq!(emulator.conflicts(), [""; 0]);
    assert_eq!(emulator.leaks(), [""; 0]);
    closed.unwrap();
}

fn cases() -> u32 {
    std::env::var("CUDA_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(200)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn objects_can_be_dropped_in_any_order_while_work_is_in_flight(
        actions in prop::collection::vec(actions(), 20..100)
    ) {
        run(&actions);
    }
}
