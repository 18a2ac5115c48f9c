//! Capture, cutting and merging.

use std::num::NonZeroUsize;
use std::time::Duration;

use cuda::{
    Buffer, CapturedGraph, Context, Error, Event, Kernel, MergeLimits, MergedGraph, OversizedNode, Priority,
    Result, Stream, TimingRuns,
};
use cuda_emulator::{Emulator, Setting};

use super::kernels::{kernel, kernels, launch, launch_all};
use super::{on_emulated_device, open};

const ONCE: TimingRuns = TimingRuns::without_side_effects(NonZeroUsize::MIN);

fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// Returns the names of the kernels that have run after the first `before`.
fn run_since(emulator: &Emulator, before: usize) -> Vec<String> {
    emulator.kernels().into_iter().skip(before).map(|kernel| kernel.name).collect()
}

#[test]
fn a_captured_graph_runs_when_it_is_launched_and_not_before() {
    on_emulated_device(|emulator, context| {
        let stream = Stream::new(context, Priority::Background)?;
        let layers = kernels(context, &["a_10us", "b_20us"])?;
        let graph = stream.capture(|stream| launch_all(&layers, stream))?;
        assert_eq!(graph.node_count()?, 2);
        let executable = graph.instantiate()?;
        stream.synchronize()?;
        assert!(emulator.kernels().is_empty());
        executable.launch(&stream)?;
        stream.synchronize()?;
        assert_eq!(run_since(emulator, 0), ["a_10us", "b_20us"]);
        Ok(())
    });
}

#[test]
fn a_stream_can_be_used_after_a_capture_that_failed() {
    on_emulated_device(|_, context| {
        let stream = Stream::new(context, Priority::Background)?;
        let layer = kernel(context, "a_10us")?;
        let refused = Error::Invalid("no".to_owned());
        let failed = stream.capture(|stream| launch(&layer, stream).and(Err(refused.clone())));
        assert_eq!(failed.err(), Some(refused));
        let panics = std::panic::AssertUnwindSafe(|| stream.capture::<Error>(|_| panic!("in a capture")));
        assert!(std::panic::catch_unwind(panics).is_err());
        assert_eq!(stream.capture(|stream| launch(&layer, stream))?.node_count()?, 1);
        Ok(())
    });
}

#[test]
fn a_wait_for_an_event_outside_the_capture_is_an_error_that_names_the_call() {
    let emulator = Emulator::new().unwrap();
    let context = open();
    let failed = (|| {
        let stream = Stream::new(&context, Priority::Background)?;
        let event = Event::untimed(&stream)?;
        stream.record(&event)?;
        stream.capture(|stream| stream.wait_for(&event)).map(drop)
    })();
    let Err(Error::Call { call, name, .. }) = failed else { panic!("{failed:?}") };
    assert_eq!((call, name.as_str()), ("cuStreamWaitEvent", "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"));
    context.close().unwrap();
    assert_eq!(emulator.leaks(), [""; 0]);
}

/// a; then b, c and d concurrently with e and f; then g.
fn forked(context: &Context, stream: &Stream) -> Result<(CapturedGraph, Vec<Kernel>)> {
    let side = Stream::new(context, Priority::Background)?;
    let (fork, join) = (Event::untimed(stream)?, Event::untimed(stream)?);
    let layers = kernels(context, &["a_10us", "b_20us", "c_30us", "d_40us", "e_50us", "f_60us", "g_70us"])?;
    let graph = stream.capture(|stream| {
        launch(&layers[0], stream)?;
        stream.record(&fork)?;
        side.wait_for(&fork)?;
        launch_all(&layers[1..4], stream)?;
        launch_all(&layers[4..6], &side)?;
        side.record(&join)?;
        stream.wait_for(&join)?;
        launch(&layers[6], stream)
    })?;
    Ok((graph, layers))
}

#[test]
fn the_pieces_of_a_cut_graph_run_every_kernel_once_and_in_an_order_that_keeps_its_edges() {
    on_emulated_device(|emulator, context| {
        let stream = Stream::new(context, Priority::Background)?;
        let (graph, _layers) = forked(context, &stream)?;
        for budget in [0, 10, 45, 100, 1000] {
            let cut = graph.cut(&stream, us(budget), ONCE)?;
            let before = emulator.kernels().len();
            for piece in &cut.pieces {
                assert!(piece.nodes.len() == 1 || piece.took <= us(budget), "{piece:?}");
                piece.executable.launch(&stream)?;
            }
            stream.synchronize()?;
            let run = run_since(emulator, before);
            let place = |name: &str| run.iter().position(|kernel| kernel.starts_with(name)).unwrap();
            for order in ["abcdg", "aefg"] {
                let names: Vec<_> = order.split("").filter(|name| !name.is_empty()).collect();
                assert!(names.is_sorted_by_key(|name| place(name)), "{run:?}");
            }
            assert_eq!(run.len(), 7, "{run:?}");
            let singly: Vec<_> = cut.pieces.iter().filter(|piece| piece.took > us(budget)).collect();
            let oversized: Vec<_> = cut.oversized.iter().map(|node| node.node..node.node + 1).collect();
            assert_eq!(singly.iter().map(|piece| piece.nodes.clone()).collect::<Vec<_>>(), oversized);
        }
        Ok(())
    });
}

#[test]
fn the_order_of_pieces_does_not_depend_on_the_order_of_the_list() {
    on_emulated_device(|emulator, context| {
        emulator.set(Setting::ReverseNodeOrder, 1);
        let stream = Stream::new(context, Priority::Background)?;
        let (graph, _layers) = forked(context, &stream)?;
        let cut = graph.cut(&stream, us(45), ONCE)?;
        let before = emulator.kernels().len();
        cut.pieces.iter().try_for_each(|piece| piece.executable.launch(&stream))?;
        stream.synchronize()?;
        let run = run_since(emulator, before);
        let place = |name: char| run.iter().position(|kernel| kernel.starts_with(name)).unwrap();
        assert!("abcdg".chars().is_sorted_by_key(place) && "aefg".chars().is_sorted_by_key(place), "{run:?}");
        Ok(())
    });
}

#[test]
fn pieces_are_timed_and_what_is_too_long_is_reported() {
    on_emulated_device(|_, context| {
        let stream = Stream::new(context, Priority::Background)?;
        let layers = kernels(context, &["a_100us", "b_300us", "c_700us", "d_100us", "e_100us"])?;
        let graph = stream.capture(|stream| launch_all(&layers, stream))?;
        let cut = graph.cut(
            &stream,
            us(500),
            TimingRuns::without_side_effects(NonZeroUsize::MIN.saturating_add(2)),
        )?;
        let pieces: Vec<_> = cut.pieces.iter().map(|piece| (piece.nodes.clone(), piece.took)).collect();
        assert_eq!(pieces, [(0..2, us(400)), (2..3, us(700)), (3..5, us(200))]);
        assert_eq!(cut.oversized, [OversizedNode { node: 2, took: us(700) }]);
        Ok(())
    });
}

#[test]
fn weights_are_restored_after_a_graph_that_changes_them_was_timed() {
    on_emulated_device(|_, context| {
        let stream = Stream::new(context, Priority::Background)?;
        let weights = Buffer::<f32>::zeros(context, 2)?;
        let layers = kernels(context, &["forward_20us", "backward_30us"])?;
        let graph = stream.capture(|stream| {
            launch_all(&layers, stream)?;
            weights.fill_bytes(stream, 0)
        })?;

        weights.upload(&stream, &[1.0; 2])?;
        let cut = graph.cut(&stream, us(30), TimingRuns::restoring(NonZeroUsize::MIN, &[&weights]))?;
        assert_eq!(weights.to_vec(&stream)?, [1.0; 2], "timing must restore the content");
        assert_eq!(cut.pieces.len(), 2);
        cut.pieces.iter().try_for_each(|piece| piece.executable.launch(&stream))?;
        assert_eq!(weights.to_vec(&stream)?, [0.0; 2]);

        // The declaration matters: a graph wrongly declared to have no side effects has them.
        weights.upload(&stream, &[1.0; 2])?;
        graph.cut(&stream, us(30), ONCE)?;
        assert_eq!(weights.to_vec(&stream)?, [0.0; 2]);
        Ok(())
    });
}

#[test]
fn an_empty_graph_has_no_pieces() {
    on_emulated_device(|_, context| {
        let stream = Stream::new(context, Priority::Background)?;
        let cut = stream.capture(|_| Ok::<_, Error>(()))?.cut(&stream, us(500), ONCE)?;
        assert!(cut.pieces.is_empty() && cut.oversized.is_empty());
        Ok(())
    });
}

#[test]
fn a_graph_that_allocates_is_neither_cut_nor_merged() {
    on_emulated_device(|_, context| {
        let stream = Stream::new(context, Priority::Background)?;
        let graph = stream.capture(|stream| Buffer::<u32>::in_stream(stream, 4).map(drop))?;
        let refused = Error::MemoryNodes { nodes: 2 };
        assert_eq!(graph.cut(&stream, us(500), ONCE).err(), Some(refused.clone()));
        let other = stream.capture(|_| Ok::<_, Error>(()))?;
        let merged =
            MergedGraph::merge_consecutive(&[(graph, us(1)), (other, us(1))], MergeLimits::default());
        assert_eq!(merged.err(), Some(refused));
        Ok(())
    });
}

#[test]
fn priorities_and_cuts_apply_inside_chained_graphs() {
    on_emulated_device(|emulator, context| {
        let stream = Stream::new(context, Priority::Background)?;
        let layers = kernels(context, &["a_10us", "b_20us", "c_30us"])?;
        let first = stream.capture(|stream| launch_all(&layers[..2], stream))?;
        let second = stream.capture(|stream| launch(&layers[2], stream))?;
        let chain = CapturedGraph::chain([&first, &second])?;
        assert!(matches!(CapturedGraph::chain([]), Err(Error::Invalid(_))));
        chain.set_priority(Priority::Foreground)?;
        assert_eq!(chain.node_count()?, 2);
        let cut = chain.cut(&stream, us(30), ONCE)?;
        assert_eq!(cut.pieces.iter().map(|piece| piece.took).collect::<Vec<_>>(), [us(30), us(30)]);
        let before = emulator.kernels().len();
        cut.pieces.iter().try_for_each(|piece| piece.executable.launch(&stream))?;
        stream.synchronize()?;
        assert_eq!(run_since(emulator, before), ["a_10us", "b_20us", "c_30us"]);
        Ok(())
    });
}

#[test]
fn short_neighbours_are_merged_and_run_in_order() {
    on_emulated_device(|emulator, context| {
        let stream = Stream::new(context, Priority::Foreground)?;
        let names = ["a_200us", "b_200us", "c_200us", "d_900us", "e_900us", "f_100us"];
        let layers = kernels(context, &names)?;
        let graphs = layers
            .iter()
            .zip(names)
            .map(|(layer, name)| Ok((stream.capture(|stream| launch(layer, stream))?, time_in_name(name))));
        let graphs = graphs.collect::<Result<Vec<_>>>()?;
        let merged = MergedGraph::merge_consecutive(&graphs, MergeLimits::default())?;
        drop(graphs);
        let ranges: Vec<_> = merged.iter().map(|merged| merged.graphs.clone()).collect();
        assert_eq!(ranges, [0..3, 3..4, 4..5, 5..6]);
        assert_eq!(merged[0].estimate, us(600));
        for merged in &merged {
            merged.executable.launch(&stream)?;
        }
        stream.synchronize()?;
        assert_eq!(run_since(emulator, 0), names);
        Ok(())
    });
}

/// Returns the duration in a kernel's name.
fn time_in_name(name: &str) -> Duration {
    us(name.trim_matches(|character: char| !character.is_ascii_digit()).parse().unwrap())
}

/// Two graphs of the same kernels, one of them with priority, run concurrently on equal streams.
#[test]
fn a_priority_that_a_graph_was_given_is_kept_by_its_pieces() {
    on_emulated_device(|emulator, context| {
        let streams =
            [Stream::new(context, Priority::Background)?, Stream::new(context, Priority::Background)?];
        let late = kernels(context, &["late_10us", "late_11us"])?;
        let urgent = kernels(context, &["urgent_10us", "urgent_11us"])?;
        let late = streams[0].capture(|stream| launch_all(&late, stream))?.cut(&streams[0], us(15), ONCE)?;
        let graph = streams[1].capture(|stream| launch_all(&urgent, stream))?;
        graph.set_priority(Priority::Foreground)?;
        let urgent_cut = graph.cut(&streams[1], us(15), ONCE)?;
        assert_eq!((late.pieces.len(), urgent_cut.pieces.len()), (2, 2));

        let before = emulator.kernels().len();
        for (stream, cut) in streams.iter().zip([&late, &urgent_cut]) {
            cut.pieces.iter().try_for_each(|piece| piece.executable.launch(stream))?;
        }
        streams.iter().try_for_each(Stream::synchronize)?;
        let run = run_since(emulator, before);
        // The first kernel starts before any other work arrives; from then on the priority decides.
        assert_eq!(run, ["late_10us", "urgent_10us", "urgent_11us", "late_11us"]);
        Ok(())
    });
}

/// The last graph has the priority and still waits.
#[test]
fn chained_graphs_run_one_after_another_whatever_their_priorities() {
    on_emulated_device(|emulator, context| {
        let stream = Stream::new(context, Priority::Background)?;
        let layers = kernels(context, &["first_10us", "second_10us", "third_10us"])?;
        let graphs = layers.iter().zip([Priority::Background, Priority::Background, Priority::Foreground]);
        let graphs = graphs.map(|(layer, priority)| {
            let graph = stream.capture(|stream| launch(layer, stream))?;
            graph.set_priority(priority).map(|()| graph)
        });
        let graphs = graphs.collect::<Result<Vec<_>>>()?;
        CapturedGraph::chain(&graphs)?.instantiate()?.launch(&stream)?;
        stream.synchronize()?;
        assert_eq!(run_since(emulator, 0), ["first_10us", "second_10us", "third_10us"]);
        Ok(())
    });
}

/// As for a graph of kernels, but the kernels are in child graphs.
#[test]
fn a_priority_that_a_chain_is_given_is_that_of_the_graphs_in_it() {
    on_emulated_device(|emulator, context| {
        let streams =
            [Stream::new(context, Priority::Background)?, Stream::new(context, Priority::Background)?];
        let chain = |names: &[&str]| {
            let layers = kernels(context, names)?;
            let graphs = layers.iter().map(|layer| streams[0].capture(|stream| launch(layer, stream)));
            let chain = CapturedGraph::chain(&graphs.collect::<Result<Vec<_>>>()?)?;
            Ok((chain, layers))
        };
        let (late, _late) = chain(&["late_10us", "late_11us"])?;
        let (urgent, _urgent) = chain(&["urgent_10us", "urgent_11us"])?;
        urgent.set_priority(Priority::Foreground)?;
        let (late, urgent) = (late.instantiate()?, urgent.instantiate()?);
        late.launch(&streams[0])?;
        urgent.launch(&streams[1])?;
        streams.iter().try_for_each(Stream::synchronize)?;
        assert_eq!(run_since(emulator, 0), ["late_10us", "urgent_10us", "urgent_11us", "late_11us"]);
        Ok(())
    });
}

#[test]
fn event_is_queried_beside_a_capture_of_the_same_thread() {
    let (emulator, context) = (Emulator::new().unwrap(), open());
    let [captured, other] = [(); 2].map(|()| Stream::new(&context, Priority::Foreground).unwrap());
    let event = Event::untimed(&other).unwrap();
    other.record(&event).unwrap();
    other.synchronize().unwrap();
    let graph = captured.capture(|_| {
        assert!(event.is_complete_beside_captures()?);
        Result::Ok(())
    });
    assert_eq!(graph.unwrap().node_count().unwrap(), 0);
    assert_eq!(emulator.misuse(), [""; 0]);
    // A query in the thread's own mode is refused, and ends the capture.
    assert!(captured.capture(|_| event.is_complete().map(drop)).is_err());
    assert_eq!(emulator.misuse().len(), 1);
}
