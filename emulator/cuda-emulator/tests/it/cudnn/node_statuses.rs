//! Statuses of operations of graphs that have several, as recorded from the real library.

use super::{Cudnn, DATA_TYPE, F32, TENSOR, Value, real};
use cuda_emulator::Emulator;

/// Types of attributes.
const POINTWISE_MODE: u32 = 14;
const REDUCTION_OPERATOR: u32 = 18;

/// Kinds of descriptors: parameters of operations, and operations.
const POINTWISE_RULE: u32 = 0;
const POINTWISE: u32 = 13;
const PRODUCT_RULE: u32 = 18;
const PRODUCT: u32 = 19;
const REDUCTION_RULE: u32 = 21;
const REDUCTION: u32 = 22;
const RESHAPE: u32 = 31;

/// Functions.
const MULTIPLY: i32 = 1;
const EXPONENTIAL: i32 = 13;
const SELECT: i32 = 601;

/// Finalises a descriptor and returns the last status, in words.
fn status(cudnn: &Cudnn, kind: u32, attributes: &[(u32, Value)]) -> String {
    let (descriptor, statuses) = cudnn.tried(kind, attributes);
    cudnn.destroy(&[descriptor]);
    statuses.last().map_or_else(String::new, |status| (status / 1000 * 1000).to_string())
}

/// Creates a virtual tensor without gaps.
fn tensor(cudnn: &Cudnn, id: i64, [a, b, c, d]: [i64; 4]) -> usize {
    cudnn.made(
        TENSOR,
        &[
            (901, Value::Int32(DATA_TYPE, &[F32])),
            (902, Value::Int64(&[a, b, c, d])),
            (903, Value::Int64(&[b * c * d, c * d, d, 1])),
            (906, Value::Int64(&[id])),
            (900, Value::Int64(&[16])),
        ],
    )
}

fn all(cudnn: &Cudnn) -> Vec<String> {
    let mode = |mode: &'static i32| (0, Value::Int32(POINTWISE_MODE, std::slice::from_ref(mode)));
    let pointwise = |function| cudnn.made(POINTWISE_RULE, &[mode(function)]);
    let product = cudnn.made(PRODUCT_RULE, &[(1500, Value::Int32(DATA_TYPE, &[F32]))]);
    let sum = (1600, Value::Int32(REDUCTION_OPERATOR, &[0]));
    let reduction = cudnn.made(REDUCTION_RULE, &[sum]);
    let functions = [&MULTIPLY, &EXPONENTIAL, &SELECT].map(pointwise);
    let sizes = [[2, 3, 4, 8], [2, 3, 8, 5], [2, 3, 4, 5], [2, 3, 4, 1], [2, 3, 3, 1], [2, 3, 8, 4]];
    let mut id = 0;
    let tensors = sizes.map(|sizes| {
        id += 1;
        tensor(cudnn, id, sizes)
    });
    let [x, w, y, row, odd, transposed] = tensors;
    let object = |name: u32, object: usize| (name, Value::Object(object));
    let products = |[a, b, c]: [usize; 3]| {
        let attributes = [object(1523, product), object(1520, a), object(1521, b), object(1522, c)];
        status(cudnn, PRODUCT, &attributes)
    };
    let functions_of = |function: usize, inputs: &[usize]| {
        let names = [751, 752, 758];
        let mut attributes = vec![object(750, functions[function]), object(753, x)];
        attributes.extend(names.into_iter().zip(inputs).map(|(name, input)| object(name, *input)));
        status(cudnn, POINTWISE, &attributes)
    };
    let sums = |[x, y]: [usize; 2]| {
        status(cudnn, REDUCTION, &[object(1612, reduction), object(1610, x), object(1611, y)])
    };
    let views = |[x, y]: [usize; 2]| status(cudnn, RESHAPE, &[object(2200, x), object(2201, y)]);
    let lines = vec![
        format!("function without a mode: {}", status(cudnn, POINTWISE_RULE, &[])),
        format!("product without a type: {}", status(cudnn, PRODUCT_RULE, &[])),
        format!("reduction without an operator: {}", status(cudnn, REDUCTION_RULE, &[])),
        format!("mode as a number: {}", {
            let (descriptor, statuses) = cudnn.tried(POINTWISE_RULE, &[(0, Value::Int64(&[1]))]);
            cudnn.destroy(&[descriptor]);
            (statuses[0] / 1000 * 1000).to_string()
        }),
        format!("product: {}", products([x, w, y])),
        format!("product, another depth: {}", products([x, x, y])),
        format!("product, another result: {}", products([x, w, row])),
        format!("product without tensors: {}", status(cudnn, PRODUCT, &[object(1523, product)])),
        format!("multiply: {}", functions_of(0, &[x, row])),
        format!("multiply one: {}", functions_of(0, &[x])),
        format!("exponential: {}", functions_of(1, &[x])),
        format!("select of two: {}", functions_of(2, &[x, row])),
        format!("select: {}", functions_of(2, &[x, row, x])),
        format!("sum: {}", sums([x, row])),
        format!("sum to another size: {}", sums([x, odd])),
        format!("reshape: {}", views([x, transposed])),
        format!("reshape to another size: {}", views([x, y])),
        format!("reshape of nothing: {}", status(cudnn, RESHAPE, &[])),
    ];
    cudnn.destroy(&tensors);
    cudnn.destroy(&functions);
    cudnn.destroy(&[product, reduction]);
    lines
}

/// Statuses of the real library, one line a try.
const RECORDED: &str = include_str!("node_statuses.txt");

#[test]
fn statuses_of_operations_are_those_recorded() {
    let emulator = Emulator::new().unwrap();
    let lines = all(&Cudnn::emulated());
    assert_eq!(lines.join("\n"), RECORDED.trim_end());
    assert_eq!(emulator.leaks(), Vec::<String>::new());
}

#[test]
fn recorded_statuses_of_operations_are_those_of_the_real_library() {
    let test = "cudnn::node_statuses::recorded_statuses_of_operations_are_those_of_the_real_library";
    if let Some(lines) = real::lines(test, all) {
        assert_eq!(lines.join("\n"), RECORDED.trim_end());
    }
}
