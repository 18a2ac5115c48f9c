//! Traces of PyTorch's profiler: assignment of operators and kernels to layers, and damaged traces.

use std::time::Duration;

use layer_graph::{Conv2d, LayerGraph, LayerKind, Linear, Shape};
use layer_profile::{DeviceModel, KinetoTrace, Origin, ProfileError, TraceTimes};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A convolution with two activations by the same module, and a classifier.
fn network() -> LayerGraph {
    let mut network = LayerGraph::new("small", Shape::image(3, 8, 8)).unwrap();
    let input = network.input();
    let conv = network.add("conv", Conv2d::new(4, 3).padding(1), [input]).unwrap();
    let relu = network.add("act", LayerKind::Relu, [conv]).unwrap();
    let again = network.add("act.2", LayerKind::Relu, [relu]).unwrap();
    let flat = network.add("flatten", LayerKind::Flatten, [again]).unwrap();
    let scores = network.add("fc", Linear::new(5), [flat]).unwrap();
    network.add("loss", LayerKind::CROSS_ENTROPY, [scores]).unwrap();
    network
}

/// Kind of names of modules in a trace.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Names {
    Marks,
    Stacks,
    None,
}

/// Trace that is written event by event, one after the other.
struct Writer {
    names: Names,
    events: Vec<Value>,
    now: f64,
    node: u64,
    external: u64,
    /// Duration of the kernel that each operator launches, as a multiple of its own. `None` for a
    /// processor.
    kernels: Option<f64>,
}

impl Writer {
    fn new(names: Names, kernels: Option<f64>) -> Self {
        Self { names, events: Vec::new(), now: 1e9, node: 7, external: 1, kernels }
    }

    fn event(&mut self, cat: &str, name: &str, (start, dur): (f64, f64), args: &Value) {
        self.events
            .push(json!({"ph": "X", "cat": cat, "name": name, "pid": 10, "tid": 11, "ts": start, "dur": dur,
            "args": args}));
    }

    /// Writes a call of a module with the given path and class around other events.
    fn call(&mut self, path: &str, class: &str, body: impl FnOnce(&mut Self)) {
        let start = self.now;
        self.now += 1.0;
        body(self);
        self.now += 1.0;
        let span = (start, self.now - start);
        match self.names {
            Names::Marks => self.event("user_annotation", &format!("deeppool:{path}"), span, &json!({})),
            Names::Stacks => self.event("python_function", &format!("nn.Module: {class}"), span, &json!({})),
            Names::None => {}
        }
    }

    /// Writes an operator of `us` microseconds with a nested one, and its kernel on a GPU.
    fn operator(&mut self, name: &str, us: f64, shapes: &Value, node: Option<u64>) {
        let mut args = json!({"External id": self.external, "Input Dims": shapes});
        if let Some(node) = node {
            args["Sequence number"] = json!(node);
        }
        self.event("cpu_op", name, (self.now, us), &args);
        args["External id"] = json!(self.external + 1);
        self.event("cpu_op", "aten::inner", (self.now + us / 4.0, us / 2.0), &args);
        if let Some(factor) = self.kernels {
            let correlation = 100 + self.external;
            let launch = json!({"correlation": correlation});
            self.event("cuda_runtime", "cudaLaunchKernel", (self.now + us / 3.0, us / 10.0), &launch);
            self.events
                .push(json!({"ph": "X", "cat": "kernel", "name": format!("kernel of {name}"), "pid": 0,
                "tid": "stream 7", "ts": self.now + 1e4, "dur": us * factor, "args": launch}));
        }
        self.external += 2;
        self.now += us + 1.0;
    }

    /// Writes an operator of the forward pass that creates a node.
    fn forward(&mut self, name: &str, us: f64, shapes: &Value) {
        self.operator(name, us, shapes, Some(self.node));
        self.node += 1;
    }

    fn backward(&mut self, name: &str, us: f64, node: Option<u64>) {
        let name = format!("autograd::engine::evaluate_function: {name}");
        self.operator(&name, us, &json!([]), node);
    }

    /// Writes an iteration of training of [`network`] with `batch` samples, whose operators take
    /// `us` times as long as the first one.
    fn iteration(&mut self, batch: usize, us: f64) {
        let image = json!([[batch, 4, 8, 8]]);
        let first = self.node;
        self.operator("aten::to", 3.0 * us, &json!([]), None);
        self.call("", "Small_0", |w| {
            w.call("conv", "Conv2d_0", |w| {
                w.forward("aten::conv2d", 100.0 * us, &json!([[batch, 3, 8, 8], [4, 3, 3, 3], []]));
            });
            w.call("act", "ReLU_0", |w| w.forward("aten::relu_", 10.0 * us, &image));
            w.call("act", "ReLU_0", |w| w.forward("aten::relu", 20.0 * us, &image));
            w.operator("aten::flatten", us, &image, None);
            w.call("fc", "Linear_0", |w| {
                w.forward("aten::linear", 40.0 * us, &json!([[batch, 256], [5, 256], [5]]));
            });
        });
        self.forward("aten::cross_entropy_loss", 5.0 * us, &json!([[batch, 5], [batch], []]));
        self.operator("aten::ones_like", us, &json!([]), None);
        let operators =
            [("NllLoss", 4.0), ("Addmm", 80.0), ("Relu", 21.0), ("Relu", 11.0), ("Convolution", 200.0)];
        for (i, (name, times)) in operators.into_iter().enumerate() {
            self.backward(&format!("{name}Backward0"), times * us, Some(first + 4 - i as u64));
            if times > 50.0 {
                self.backward("torch::autograd::AccumulateGrad", 2.0 * us, None);
            }
        }
        let start = self.now;
        self.operator("aten::_foreach_add_", 30.0 * us, &json!([]), None);
        self.event("user_annotation", "Optimizer.step#SGD.step", (start, self.now - start), &json!({}));
        self.operator("aten::item", 2.0 * us, &json!([]), None);
    }

    fn text(&self) -> String {
        let gpu = json!([{"id": 0, "name": "NVIDIA A100-SXM4-80GB"}, {"id": 1, "name": "other"}]);
        json!({"schemaVersion": 1, "deviceProperties": if self.kernels.is_some() { gpu } else { json!([]) },
            "traceEvents": self.events, "traceName": "small"})
        .to_string()
    }
}

fn times_of(text: &str) -> Result<TraceTimes, ProfileError> {
    KinetoTrace::from_reader(text.as_bytes())?.for_network(&network())
}

fn us(us: f64) -> Duration {
    Duration::from_nanos((us * 1e3).round() as u64)
}

/// Expected times of the layers, in microseconds.
const LAYERS: [(&str, [f64; 2]); 6] = [
    ("conv", [100.0, 202.0]),
    ("act", [10.0, 11.0]),
    ("act.2", [20.0, 21.0]),
    ("flatten", [1.0, 0.0]),
    ("fc", [40.0, 82.0]),
    ("loss", [6.0, 4.0]),
];

#[test]
fn operators_belong_to_the_layers_of_their_modules_and_nodes() {
    for names in [Names::Marks, Names::Stacks] {
        for kernels in [None, Some(0.5)] {
            let mut writer = Writer::new(names, kernels);
            // The mean of two iterations.
            writer.iteration(4, 0.5);
            writer.iteration(4, 1.5);
            let times = times_of(&writer.text()).unwrap();
            let factor = kernels.unwrap_or(1.0);
            let expected = LAYERS.map(|(_, passes)| Some(passes.map(|time| us(time * factor))));
            assert_eq!(times.layers, expected, "{names:?} {kernels:?}");
            assert_eq!((times.iterations, times.batch), (2, Some(4)));
            assert_eq!(times.update, Some(us(30.0 * factor)));
            assert_eq!(times.total, us(532.0 * factor));
            let gpu = kernels.map(|_| "NVIDIA A100-SXM4-80GB".to_owned());
            assert_eq!(times.gpu, gpu);
            let kernel =
                |name: &str| if gpu.is_some() { format!("kernel of {name}") } else { name.to_owned() };
            let unassigned =
                [(kernel("aten::to"), us(3.0 * factor)), (kernel("aten::item"), us(2.0 * factor))];
            assert_eq!(times.unassigned, unassigned);
            assert!((times.assigned_share() - 527.0 / 532.0).abs() < 1e-6);
            let what = if gpu.is_some() { "kernels" } else { "operators" };
            let line = format!("0.9% of the time of all {what} is not assigned: {} 0.6%", kernel("aten::to"));
            assert!(times.unassigned_line().starts_with(&line), "{}", times.unassigned_line());
        }
    }
}

#[test]
fn evaluation_between_iterations_is_not_assigned() {
    let mut writer = Writer::new(Names::Marks, None);
    writer.iteration(4, 1.0);
    writer.call("", "Small_0", |w| {
        w.call("conv", "Conv2d_0", |w| w.operator("aten::conv2d", 50.0, &json!([]), None));
    });
    writer.iteration(4, 1.0);
    let times = times_of(&writer.text()).unwrap();
    assert_eq!((times.iterations, times.layers[0]), (2, Some([us(100.0), us(202.0)])));
    assert_eq!(times.unassigned[0], ("aten::conv2d".to_owned(), us(25.0)));
}

#[test]
fn traces_are_profiles_of_their_batch_sizes() {
    let times = |batch: usize, factor: f64| {
        let mut writer = Writer::new(Names::Marks, None);
        writer.iteration(batch, factor);
        let times = times_of(&writer.text()).unwrap();
        (times.batch.unwrap(), times)
    };
    let traces = [times(8, 2.0), times(4, 1.0)];
    let imported = TraceTimes::profile(&traces, &network(), "processor", None).unwrap();
    let table = imported.table.clone().for_model(&network()).unwrap();
    assert_eq!((table.origin(), table.device()), (Origin::Imported, "processor"));
    for (name, [forward, backward]) in LAYERS {
        let time = table.time(name, 6).unwrap();
        assert_eq!((time.forward, time.backward), (us(1.5 * forward), us(1.5 * backward)), "{name}");
    }
    assert_eq!(table.network_time(4).unwrap().update, us(30.0));
    assert_eq!(table.network_time(4).unwrap().forward, us(177.0));
    let updates: Duration = table.layers().iter().filter_map(|layer| layer.update).sum();
    assert!(updates.abs_diff(us(30.0)) < us(0.01), "{updates:?}");
    assert!(imported.modelled.is_empty() && table.accuracy().is_none());

    let twice = [times(4, 1.0), times(4, 1.0)];
    let error = TraceTimes::profile(&twice, &network(), "processor", None).unwrap_err();
    assert!(error.to_string().contains("ascending order, found 4 after 4"), "{error}");
}

#[test]
fn missing_times_are_modelled_or_an_error() {
    let mut writer = Writer::new(Names::Stacks, None);
    writer.iteration(4, 1.0);
    let is_left_out = |event: &Value| {
        let name = event["name"].as_str().unwrap_or_default();
        name.starts_with("Optimizer") || name == "aten::_foreach_add_" || name == "aten::flatten"
    };
    writer.events.retain(|event| !is_left_out(event));
    let times = times_of(&writer.text()).unwrap();
    assert_eq!((times.update, times.layers[3]), (None, None));
    let traces = [(4, times)];
    let error = TraceTimes::profile(&traces, &network(), "a100", None).unwrap_err();
    assert!(matches!(error, ProfileError::UntracedUpdate), "{error}");
    let model = DeviceModel::named("a100").unwrap();
    let imported = TraceTimes::profile(&traces, &network(), "a100", Some(&model)).unwrap();
    assert_eq!(imported.modelled, ["flatten"]);
    let table = imported.table.for_model(&network()).unwrap();
    assert!(!table.time("fc", 4).unwrap().update.is_zero());
    assert!(table.accuracy().unwrap().basis.contains("not in the trace"));

    let (_, mut times) = traces.into_iter().next().unwrap();
    times.update = Some(us(1.0));
    let times = TraceTimes::profile(&[(4, times)], &network(), "a100", None);
    assert!(matches!(times, Err(ProfileError::UntracedLayer { layer, .. }) if layer == "flatten"));
}

#[test]
fn traces_without_names_or_of_other_networks_are_errors() {
    let mut writer = Writer::new(Names::None, None);
    writer.iteration(4, 1.0);
    let error = times_of(&writer.text()).unwrap_err();
    assert!(matches!(error, ProfileError::UnnamedTrace { .. }));
    let text = error.to_string();
    for part in
        ["100.0% of the time of all operators is not assigned: ", "with_stack=True", "ConvolutionBackward0"]
    {
        assert!(text.contains(part), "{text}");
    }

    let mut writer = Writer::new(Names::Stacks, None);
    writer.iteration(4, 1.0);
    let text = writer.text();
    let trace = KinetoTrace::from_reader(text.as_bytes()).unwrap();
    let other = layer_graph::zoo::model("vgg11").unwrap();
    let error = trace.for_network(&other).unwrap_err().to_string();
    assert!(error.contains("not one of training `vgg11`: no operator computes its layer"), "{error}");
    let mut smaller = LayerGraph::new("smaller", Shape::image(3, 8, 8)).unwrap();
    let flat = smaller.add("flatten", LayerKind::Flatten, [smaller.input()]).unwrap();
    let scores = smaller.add("fc", Linear::new(5), [flat]).unwrap();
    smaller.add("loss", LayerKind::CROSS_ENTROPY, [scores]).unwrap();
    let error = trace.for_network(&smaller).unwrap_err().to_string();
    assert!(error.ends_with("1 operators are of none of its layers, such as `conv2d`"), "{error}");

    let inference = text.replace("autograd::engine::evaluate_function: ", "");
    let error = times_of(&inference).unwrap_err().to_string();
    assert!(error.ends_with("it has no forward pass with a backward pass"), "{error}");
}

#[test]
fn damaged_traces_are_errors_that_name_the_event() {
    let mut writer = Writer::new(Names::Marks, Some(1.0));
    writer.iteration(4, 1.0);
    let whole = writer.text();
    let event = |event: &str| format!("{{\"traceEvents\": [{{}}, {event}]}}");
    let valid = r#""ph": "X", "cat": "cpu_op", "name": "a""#;
    for (text, expected) in [
        (String::new(), "EOF while parsing"),
        ("no trace".to_owned(), "expected ident at line 1"),
        ("7".to_owned(), "expected an object with `traceEvents`"),
        ("[]".to_owned(), "there are no `traceEvents`"),
        ("{}".to_owned(), "there are no `traceEvents`"),
        ("{\"traceEvents\": {}}".to_owned(), "expected a list of events"),
        ("{\"traceEvents\": [], \"traceEvents\": []}".to_owned(), "duplicate field `traceEvents`"),
        ("{\"traceEvents\": [], \"deviceProperties\": 1}".to_owned(), "expected a list of GPUs"),
        (whole[..whole.len() / 2].to_owned(), "EOF while parsing"),
        (format!("{whole} {{"), "trailing characters"),
        (event("1"), "`traceEvents[1]`: invalid type: integer `1`"),
        (event(&format!("{{{valid}}}")), "`traceEvents[1]`: expected `ts` and `dur`"),
        (event(&format!("{{{valid}, \"ts\": \"1\", \"dur\": 1}}")), "`traceEvents[1]`: invalid type: string"),
        (event(&format!("{{{valid}, \"ts\": 1, \"dur\": -1}}")), "expected times in microseconds"),
        (event(&format!("{{{valid}, \"ts\": 1e300, \"dur\": 1}}")), "expected times in microseconds"),
        (event("{\"args\": {\"correlation\": []}}"), "`traceEvents[1]`: invalid type: sequence"),
        (event("{\"args\": {\"Input Dims\": [[1, \"x\"]]}}"), "expected a size or a shape"),
        (event("{\"tid\": []}"), "expected the number or the name of a process or a thread"),
        (event(&"[".repeat(200)), "`traceEvents[1]`: invalid type: sequence"),
        (event(&format!("{{\"name\": \"{}\"}}", "x".repeat(5 << 20))), "`traceEvents[1]`: more than 4 MiB"),
    ] {
        let error = times_of(&text).unwrap_err();
        assert!(matches!(error, ProfileError::Trace(_)), "{error}");
        let line = error.to_string();
        assert!(line.contains(expected) && line.lines().count() == 1, "{expected}: {line}");
    }
}

/// Published traces have no names of modules, so that all of their kernels are listed.
#[test]
fn published_traces_are_read() {
    let folder =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/published/traces");
    if !folder.is_dir() {
        println!("SKIPPED: there are no published traces in {}", folder.display());
        return;
    }
    let mut read = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "gz") {
            let file = std::fs::File::open(&path).unwrap();
            let trace = KinetoTrace::from_reader(flate2::read::MultiGzDecoder::new(file)).unwrap();
            let error = trace.for_network(&network()).unwrap_err();
            assert!(matches!(error, ProfileError::UnnamedTrace { .. }), "{}: {error}", path.display());
            let line = error.to_string();
            assert!(line.contains(": 100.0% of the time of all kernels is not assigned: "), "{line}");
            assert_eq!(line.lines().count(), 1);
            read += 1;
        }
    }
    assert!(read > 0);
}

proptest! {
    /// A changed byte gives times or an error, and no panic.
    #[test]
    fn changed_bytes_do_not_panic(place in 0usize..1 << 20, byte in 0u8..128, names in 0usize..3) {
        let names = [Names::Marks, Names::Stacks, Names::None][names];
        let mut writer = Writer::new(names, Some(1.0));
        writer.iteration(4, 1.0);
        let mut text = writer.text().into_bytes();
        let place = place % text.len();
        text[place] = byte;
        if let Ok(trace) = KinetoTrace::from_reader(text.as_slice()) {
            if let Ok(times) = trace.for_network(&network()) {
                prop_assert!((0.0..=1.0).contains(&times.assigned_share()));
            }
        }
    }
}
