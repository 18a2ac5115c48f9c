//! Statuses of valid and invalid calls, as recorded from the real library.

use super::{
    CONFIGURATION, CONVOLUTION, Cudnn, DATA_TYPE, DEVICE, ENGINE, F32, GRAPH, H100, HEURISTIC,
    HEURISTIC_MODE, INT32, INT64, MODE, PASSES, PLAN, Shape, TENSOR, VARIANT_PACK, Value, real, strides,
};
use cuda_emulator::Emulator;
use std::ptr;

const SHAPE: Shape = Shape { channels: 4, image: [8, 8], filters: 6, ..super::SHAPE };

/// Statuses in words: `0` for success, and otherwise the category, such as `2000`.
fn text(statuses: &[u32]) -> String {
    statuses.iter().map(|status| (status / 1000 * 1000).to_string()).collect::<Vec<_>>().join(" ")
}

/// Runs a descriptor with each of its attributes replaced or left out. Returns a line for each try.
fn variations(
    cudnn: &Cudnn,
    kind: u32,
    valid: &[(u32, Value)],
    changes: &[(&str, u32, Option<Value>)],
) -> Vec<String> {
    let mut lines = Vec::new();
    for (what, name, change) in changes {
        let mut attributes: Vec<(u32, Value)> = valid.to_vec();
        let place = attributes.iter().position(|(other, _)| other == name);
        match (place, change) {
            (Some(place), Some(value)) => attributes[place].1 = *value,
            (Some(place), None) => _ = attributes.remove(place),
            (None, Some(value)) => attributes.push((*name, *value)),
            (None, None) => {}
        }
        let (descriptor, statuses) = cudnn.tried(kind, &attributes);
        cudnn.destroy(&[descriptor]);
        lines.push(format!("{kind} {what}: {}", text(&statuses)));
    }
    lines
}

fn tensors_and_parameters(cudnn: &Cudnn) -> Vec<String> {
    let tensor = [
        (901, Value::Int32(DATA_TYPE, &[F32])),
        (902, Value::Int64(&[2, 4, 8, 8])),
        (903, Value::Int64(&[256, 64, 8, 1])),
        (906, Value::Int64(&[1])),
        (900, Value::Int64(&[16])),
    ];
    let mut lines = variations(
        cudnn,
        TENSOR,
        &tensor,
        &[
            ("valid", 0, None),
            ("no type", 901, None),
            ("no dimensions", 902, None),
            ("no strides", 903, None),
            ("no id", 906, None),
            ("no alignment", 900, None),
            ("three dimensions", 902, Some(Value::Int64(&[2, 4, 8]))),
            ("a dimension of 0", 902, Some(Value::Int64(&[2, 0, 8, 8]))),
            ("a negative dimension", 902, Some(Value::Int64(&[2, -1, 8, 8]))),
            ("a negative stride", 903, Some(Value::Int64(&[256, 64, 8, -1]))),
            ("gaps", 903, Some(Value::Int64(&[512, 128, 16, 1]))),
            ("channels last", 903, Some(Value::Int64(&[256, 1, 32, 4]))),
            ("alignment 3", 900, Some(Value::Int64(&[3]))),
            ("alignment 2", 900, Some(Value::Int64(&[2]))),
            ("alignment 0", 900, Some(Value::Int64(&[0]))),
            ("two types", 901, Some(Value::Int32(DATA_TYPE, &[F32, F32]))),
            ("type as a number", 901, Some(Value::Int64(&[0]))),
            ("dimensions of 32 bits", 902, Some(Value::Int32(INT32, &[2, 4, 8, 8]))),
            ("id as a float", 906, Some(Value::Float(1.0))),
            ("negative id", 906, Some(Value::Int64(&[-1]))),
            ("unknown attribute", 999, Some(Value::Int64(&[1]))),
            ("attribute of another kind", 100, Some(Value::Int32(DATA_TYPE, &[0]))),
        ],
    );
    let convolution = [
        (100, Value::Int32(DATA_TYPE, &[F32])),
        (101, Value::Int32(MODE, &[1])),
        (106, Value::Int64(&[2])),
        (105, Value::Int64(&[1, 1])),
        (104, Value::Int64(&[1, 1])),
        (103, Value::Int64(&[1, 1])),
        (102, Value::Int64(&[1, 1])),
    ];
    lines.extend(variations(
        cudnn,
        CONVOLUTION,
        &convolution,
        &[
            ("valid", 0, None),
            ("no type", 100, None),
            ("no mode", 101, None),
            ("no dimensions", 106, None),
            ("no padding", 105, None),
            ("no strides", 103, None),
            ("no dilations", 102, None),
            ("stride 0", 103, Some(Value::Int64(&[0, 1]))),
            ("dilation 0", 102, Some(Value::Int64(&[0, 1]))),
            ("padding -1", 105, Some(Value::Int64(&[-1, 1]))),
            ("three dimensions", 106, Some(Value::Int64(&[3]))),
            ("dimensions 0", 106, Some(Value::Int64(&[0]))),
            ("one padding", 105, Some(Value::Int64(&[1]))),
            ("asymmetric padding", 104, Some(Value::Int64(&[0, 1]))),
        ],
    ));
    lines
}

fn operations(cudnn: &Cudnn) -> Vec<String> {
    let tensor = |id, dimensions| cudnn.tensor(id, F32, dimensions, strides(dimensions, false));
    let [x, w, y] = SHAPE.dimensions();
    let (x, w, y) = (tensor(1, x), tensor(2, w), tensor(3, y));
    let convolution = cudnn.convolution(&SHAPE);
    let unfinished = cudnn.create(TENSOR);
    let mut lines = Vec::new();
    for (kind, [c, input, filter, output, alpha, beta]) in PASSES {
        let valid = [
            (c, Value::Object(convolution)),
            (input, Value::Object(x)),
            (filter, Value::Object(w)),
            (output, Value::Object(y)),
            (alpha, Value::Float(1.0)),
            (beta, Value::Float(0.0)),
        ];
        let other = |name, dimensions| Some((name, tensor(9, dimensions)));
        let shapes = [
            ("height of the output", other(output, [2, 6, 7, 8])),
            ("channels of the output", other(output, [2, 5, 8, 8])),
            ("batch of the output", other(output, [3, 6, 8, 8])),
            ("3 of 4 channels", other(filter, [6, 3, 3, 3])),
            ("2 groups", other(filter, [6, 2, 3, 3])),
            ("too many channels", other(filter, [6, 8, 3, 3])),
            ("a larger window", other(filter, [6, 4, 11, 11])),
            ("not finalised", Some((input, unfinished))),
        ];
        let mut changes = vec![
            ("valid", 0, None),
            ("no convolution", c, None),
            ("no input", input, None),
            ("no filter", filter, None),
            ("no output", output, None),
            ("no factors", alpha, None),
        ];
        changes.extend(shapes.iter().filter_map(|(what, change)| {
            change.map(|(name, object)| (*what, name, Some(Value::Object(object))))
        }));
        lines.extend(variations(cudnn, kind, &valid, &changes));
        let made: Vec<usize> =
            shapes.iter().filter_map(|(_, change)| change.map(|(_, object)| object)).collect();
        cudnn.destroy(&made[..made.len() - 1]);
    }
    cudnn.destroy(&[x, w, y, convolution, unfinished]);
    lines
}

fn plans(cudnn: &Cudnn) -> Vec<String> {
    let all = SHAPE.dimensions().map(|dimensions| strides(dimensions, false));
    let graph = cudnn.graph(&SHAPE, 0, F32, all, [1.0, 0.0]);
    let device = cudnn.h100();
    let empty: [usize; 2] = [cudnn.create(10), cudnn.create(CONFIGURATION)];
    let mut lines = variations(
        cudnn,
        GRAPH,
        &[],
        &[("nothing", 0, None), ("no operations", 801, Some(Value::Objects(&[])))],
    );
    let heuristic = [
        (201, Value::Object(graph)),
        (200, Value::Int32(HEURISTIC_MODE, &[3])),
        (204, Value::Object(device)),
    ];
    lines.extend(variations(
        cudnn,
        HEURISTIC,
        &heuristic,
        &[
            ("valid", 0, None),
            ("unknown mode", 200, Some(Value::Int32(HEURISTIC_MODE, &[9]))),
            ("no mode", 200, None),
            ("no graph", 201, None),
            ("no device", 204, None),
            ("target -1", 203, Some(Value::Int32(INT32, &[-1]))),
            ("target 133", 203, Some(Value::Int32(INT32, &[133]))),
            ("target 64", 203, Some(Value::Int32(INT32, &[64]))),
            ("target as a long number", 203, Some(Value::Int64(&[64]))),
        ],
    ));
    let engine = [(1300, Value::Object(graph)), (1301, Value::Int64(&[0])), (1307, Value::Object(device))];
    lines.extend(variations(
        cudnn,
        ENGINE,
        &engine,
        &[
            ("valid", 0, None),
            ("engine -1", 1301, Some(Value::Int64(&[-1]))),
            ("engine 1000", 1301, Some(Value::Int64(&[1000]))),
            ("no engine", 1301, None),
            ("no graph", 1300, None),
            ("no device", 1307, None),
            ("unlimited engine, target 64", 1306, Some(Value::Int32(INT32, &[64]))),
            ("target 200", 1306, Some(Value::Int32(INT32, &[200]))),
        ],
    ));
    for index in [0, 1, 28, 5, 80] {
        let (engine, _) = cudnn.tried(ENGINE, &[engine[0], (1301, Value::Int64(&[index])), engine[2]]);
        let (configuration, configured) = cudnn.tried(CONFIGURATION, &[(300, Value::Object(engine))]);
        let attributes = [(401, Value::Object(configuration)), (407, Value::Object(device))];
        let (plan, planned) = cudnn.tried(PLAN, &attributes);
        lines.push(format!("engine {index}: {} {}", text(&configured), text(&planned)));
        cudnn.destroy(&[engine, configuration, plan]);
    }
    lines.extend(variations(
        cudnn,
        PLAN,
        &[(407, Value::Object(device))],
        &[("no configuration", 0, None), ("not finalised", 401, Some(Value::Object(empty[1])))],
    ));
    let pack = [
        (1000, Value::Int64(&[1, 2, 3])),
        (1001, Value::Pointers(&[4096, 8192, 16384])),
        (1003, Value::Pointers(&[32768])),
    ];
    lines.extend(variations(
        cudnn,
        VARIANT_PACK,
        &pack,
        &[
            ("valid", 0, None),
            ("no workspace", 1003, None),
            ("one address", 1001, Some(Value::Pointers(&[4096]))),
            ("no ids", 1000, None),
            ("no addresses", 1001, None),
            ("ids twice", 1000, Some(Value::Int64(&[1, 1, 3]))),
            ("null", 1001, Some(Value::Pointers(&[0, 8192, 16384]))),
        ],
    ));
    let old = H100.replace(r#""deviceVer":900"#, r#""deviceVer":100"#);
    let short = H100.replace("warpSize", "other");
    let texts = [("valid", H100), ("empty", "{}\0"), ("no object", "xx\0"), ("old", &old), ("short", &short)];
    lines.extend(variations(
        cudnn,
        DEVICE,
        &[],
        &texts.map(|(what, text)| (what, 2702, Some(Value::Text(text)))),
    ));
    cudnn.destroy(&[graph, device, empty[0], empty[1]]);
    lines
}

fn calls(cudnn: &Cudnn) -> Vec<String> {
    let dimensions = [2, 4, 8, 8];
    let tensor = cudnn.tensor(1, F32, dimensions, strides(dimensions, false));
    let empty = cudnn.create(TENSOR);
    let get = |descriptor, name, kind, room| {
        let (mut values, mut count) = ([0_i64; 8], -1);
        let place = values.as_mut_ptr().cast();
        let status = cudnn.cudnnBackendGetAttribute(descriptor, name, kind, room, &raw mut count, place);
        if status == 0 { format!("0, {count} values") } else { text(&[status]) }
    };
    let null = ptr::null();
    let mut other = 0;
    let lines = vec![
        format!("set after: {}", text(&[cudnn.set(tensor, 906, Value::Int64(&[2]))])),
        format!("finalise twice: {}", text(&[cudnn.cudnnBackendFinalize(tensor)])),
        format!("null array: {}", text(&[cudnn.cudnnBackendSetAttribute(empty, 906, INT64, 1, null)])),
        format!("set null: {}", text(&[cudnn.set(0, 906, Value::Int64(&[2]))])),
        format!("finalise null: {}", text(&[cudnn.cudnnBackendFinalize(0)])),
        format!("destroy null: {}", text(&[cudnn.cudnnBackendDestroyDescriptor(0)])),
        format!("unknown kind: {}", text(&[cudnn.cudnnBackendCreateDescriptor(99, &raw mut other)])),
        format!("get: {}", get(tensor, 902, INT64, 8)),
        format!("get two: {}", get(tensor, 902, INT64, 2)),
        format!("get before: {}", get(empty, 902, INT64, 8)),
        format!("get another type: {}", get(tensor, 902, INT32, 8)),
        format!("get another attribute: {}", get(tensor, 100, DATA_TYPE, 1)),
        format!("get less than none: {}", get(tensor, 902, INT64, -1)),
        format!("destroy no handle: {}", text(&[cudnn.cudnnDestroy(0)])),
        format!("stream of no handle: {}", text(&[cudnn.cudnnSetStream(0, 0)])),
        format!("execute nothing: {}", text(&[cudnn.cudnnBackendExecute(0, 0, 0)])),
    ];
    cudnn.destroy(&[tensor, empty]);
    lines
}

fn all(cudnn: &Cudnn) -> Vec<String> {
    [tensors_and_parameters(cudnn), operations(cudnn), plans(cudnn), calls(cudnn)].concat()
}

/// Statuses of the real library, one line a try.
const RECORDED: &str = include_str!("statuses.txt");

#[test]
fn statuses_are_those_recorded() {
    let emulator = Emulator::new().unwrap();
    let lines = all(&Cudnn::emulated());
    assert_eq!(lines.join("\n"), RECORDED.trim_end());
    assert_eq!(emulator.leaks(), Vec::<String>::new());
}

#[test]
fn recorded_statuses_are_those_of_the_real_library() {
    let test = "cudnn::statuses::recorded_statuses_are_those_of_the_real_library";
    if let Some(lines) = real::lines(test, all) {
        assert_eq!(lines.join("\n"), RECORDED.trim_end());
    }
}

#[test]
fn no_device_is_not_initialised() {
    let emulator = Emulator::new().unwrap();
    emulator.set(cuda_emulator::Setting::Devices, 0);
    let cudnn = Cudnn::emulated();
    let mut handle = 0;
    assert_eq!(cudnn.cudnnCreate(&raw mut handle), 1001);
    let (device, statuses) = cudnn.tried(DEVICE, &[]);
    assert_eq!(statuses, [1001]);
    cudnn.destroy(&[device]);
    assert_eq!(emulator.misuse(), Vec::<String>::new());
}
