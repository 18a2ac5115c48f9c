//! Misuse of cuBLASLt, by status and report.

use super::{
    BATCH_COUNT, BIAS_BATCH_STRIDE, BIAS_POINTER, COMPUTE_32F, COMPUTE_FAST_TF32, EPILOGUE, Element,
    INVALID_VALUE, Lt, MAX_WORKSPACE, Matrices, ORDER, Product, Shape, TRANSA, refuses,
};
use cuda_emulator::Setting;
use std::ptr;

const NOT_INITIALIZED: u32 = 1;
const NOT_SUPPORTED: u32 = 15;

/// `CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES`.
const MIN_ALIGNMENT_A: u32 = 5;

#[test]
fn handles_need_a_device_and_no_capture() {
    let lt = Lt::start();
    refuses(&lt, lt.cublasLtCreate(ptr::null_mut()), INVALID_VALUE, "lightHandle is null");
    for mode in 0..3 {
        let stream = lt.cuda.stream(0);
        lt.cuda.ok(lt.cuda.cuStreamBeginCapture_v2(stream, mode));
        let mut handle = 0;
        let status = lt.cublasLtCreate(&raw mut handle);
        refuses(&lt, status, NOT_INITIALIZED, "creates a cuBLASLt handle during the capture of stream");
        let mut graph = 0;
        let ended = lt.cuda.cuStreamEndCapture(stream, &raw mut graph);
        if mode == 2 {
            lt.cuda.ok(ended);
            lt.cuda.ok(lt.cuda.cuGraphDestroy(graph));
        } else {
            assert_ne!(ended, 0, "a capture that is not relaxed is invalidated");
        }
        lt.cuda.ok(lt.cuda.cuStreamDestroy_v2(stream));
    }
    lt.cuda.ok(lt.cuda.cuCtxSetCurrent(0));
    let mut handle = 0;
    refuses(&lt, lt.cublasLtCreate(&raw mut handle), NOT_INITIALIZED, "no context is current");
    let lt = {
        drop(lt);
        Lt::start()
    };
    lt.cuda.emulator.set(Setting::Devices, 0);
    assert_eq!(lt.cublasLtCreate(&raw mut handle), NOT_INITIALIZED);
    assert_eq!(lt.cuda.emulator.misuse(), Vec::<String>::new());
}

#[test]
fn destroyed_and_null_objects_are_reported() {
    let lt = Lt::start();
    let mut product = Product::plain(&lt, COMPUTE_32F, [8, 8, 8]);
    let description = product.description;
    product.description = lt.cuda.make(|place| lt.cublasLtMatmulDescCreate(place, COMPUTE_32F, 0));
    lt.cuda.ok(lt.cublasLtMatmulDescDestroy(product.description));
    let why = "cublasLtMatmul: cuBLASLt product description 2 after it was destroyed";
    refuses(&lt, product.enqueue(&lt, None, 0), INVALID_VALUE, why);
    product.description = product.a.layout;
    let why = "cuBLASLt matrix layout 1 instead of a handle of kind cuBLASLt product description";
    refuses(&lt, product.heuristic(&lt, 0).0, INVALID_VALUE, why);
    product.description = description;
    let layout = std::mem::take(&mut product.b.layout);
    refuses(
        &lt,
        product.enqueue(&lt, None, 0),
        INVALID_VALUE,
        "null instead of a handle of kind cuBLASLt matrix",
    );
    product.b.layout = layout;
    lt.cuda.ok(lt.cublasLtDestroy(product.handle));
    refuses(&lt, product.enqueue(&lt, None, 0), NOT_INITIALIZED, "cuBLASLt handle 1 after it was destroyed");
    refuses(&lt, lt.cublasLtDestroy(product.handle), NOT_INITIALIZED, "after it was destroyed");
    // As with the real library, null descriptors are ignored.
    lt.cuda.ok(lt.cublasLtMatrixLayoutDestroy(0));
    assert_eq!(
        lt.cuda.emulator.leaks().iter().filter(|line| line.starts_with("cuBLASLt")).collect::<Vec<_>>(),
        [
            "cuBLASLt matrix layout 1",
            "cuBLASLt matrix layout 2",
            "cuBLASLt matrix layout 3",
            "cuBLASLt matrix layout 4",
            "cuBLASLt product description 1"
        ]
    );
}

#[test]
fn impossible_products_are_refused() {
    let lt = Lt::start();
    let product = Product::plain(&lt, COMPUTE_32F, [8, 4, 16]);
    let check = |expected, why: &str| {
        refuses(&lt, product.heuristic(&lt, 0).0, expected, why);
        refuses(&lt, product.enqueue(&lt, None, 0), expected, why);
    };
    let number = |value: u32| value.to_le_bytes();
    let describe = |attribute, value| lt.cuda.ok(lt.describe(product.description, attribute, &number(value)));
    let lay_out = |layout, attribute, value: &[u8]| lt.cuda.ok(lt.lay_out(layout, attribute, value));
    let [a, d] = [product.a.layout, product.d.layout];

    describe(TRANSA, 1);
    check(INVALID_VALUE, "op(A) has 8 columns and op(B) 16 rows");
    describe(TRANSA, 9);
    check(INVALID_VALUE, "cublasOperation_t 9");
    describe(TRANSA, 0);
    lay_out(d, 3, &5_u64.to_le_bytes());
    check(INVALID_VALUE, "D has 8 x 5 elements, and the product 8 x 4");
    lay_out(d, 3, &4_u64.to_le_bytes());
    lay_out(a, 4, &7_i64.to_le_bytes());
    check(INVALID_VALUE, "matrix A: leading dimension 7, below the 8 contiguous elements");
    lay_out(a, 4, &8_i64.to_le_bytes());
    lay_out(a, ORDER, &number(1));
    check(INVALID_VALUE, "matrix A: leading dimension 8, below the 16 contiguous elements");
    lay_out(a, ORDER, &number(2));
    check(NOT_SUPPORTED, "cublasLtOrder_t 2 is not emulated");
    lay_out(a, ORDER, &number(0));
    lay_out(a, 2, &0_u64.to_le_bytes());
    check(INVALID_VALUE, "matrix A: 0 x 16 elements");
    lay_out(a, 2, &8_u64.to_le_bytes());
    lay_out(a, BATCH_COUNT, &number(2));
    check(INVALID_VALUE, "A, B, C and D have 2, 1, 1 and 1 batches");
    lay_out(a, BATCH_COUNT, &number(1));
    lay_out(a, 6, &(-1_i64).to_le_bytes());
    lay_out(a, BATCH_COUNT, &number(3));
    check(INVALID_VALUE, "matrix A: batch stride");
    lay_out(a, BATCH_COUNT, &number(1));
    lay_out(a, 0, &number(1));
    check(NOT_SUPPORTED, "matrix A: cudaDataType_t 1 is not emulated");
    lay_out(a, 0, &number(14));
    check(NOT_SUPPORTED, "cublasComputeType_t 68 with elements of types [Bf16, F32, F32, F32]");
    lay_out(a, 0, &number(0));
    describe(EPILOGUE, 152);
    check(NOT_SUPPORTED, "cublasLtEpilogue_t 152 is not emulated");
    describe(EPILOGUE, 1);
    describe(2, 1);
    check(NOT_SUPPORTED, "the value 1 of POINTER_MODE is not emulated");
    describe(2, 0);
    describe(1, 1);
    check(NOT_SUPPORTED, "the value 1 of SCALE_TYPE is not emulated");
    describe(1, 0);
    let before = lt.cuda.emulator.misuse();
    lt.cuda.ok(product.enqueue(&lt, None, 0));
    assert_eq!(lt.cuda.emulator.misuse(), before);
}

#[test]
fn wrong_addresses_are_refused() {
    let lt = Lt::start();
    let mut product = Product::plain(&lt, COMPUTE_32F, [32, 16, 64]);
    let (_, scalar) = product.heuristic_with(&lt, &[(MIN_ALIGNMENT_A, &4_u32.to_le_bytes())]);
    let found = product.algorithms(&lt);
    let split = found.iter().find(|found| found.workspace > 0).unwrap();
    let vector = found.iter().find(|found| found.workspace == 0 && !scalar.contains(found)).unwrap();
    let (address, bytes) = product.workspace;
    let try_with = |product: &Product, found: &super::Found, why: &str| {
        refuses(&lt, product.enqueue(&lt, Some(&found.algorithm), 0), INVALID_VALUE, why);
    };
    for workspace in [(address, split.workspace - 1), (0, bytes), (address, 0)] {
        product.workspace = workspace;
        try_with(&product, split, &format!("and the algorithm needs {}", split.workspace));
    }
    product.workspace = (address + 128, split.workspace);
    try_with(&product, split, "is not aligned to 256 bytes");
    product.workspace = (address, bytes + 1);
    try_with(&product, vector, "the workspace: 1048577 bytes");
    product.workspace = (address, bytes);

    let [a, d] = [product.a.address, product.d.address];
    product.a.address = address + 4;
    try_with(&product, vector, "which the algorithm needs aligned to 16 bytes");
    product.a.address = a + 2;
    try_with(&product, vector, "A at");
    product.a.address = 0;
    try_with(&product, vector, "A at 0x0");
    product.a.address = a + 16;
    try_with(&product, vector, "A: 8192 bytes at");
    product.a.address = u64::MAX - 15;
    try_with(&product, vector, "A: 0xfffffffffffffff0 is in no allocation");
    product.a.address = a;
    product.d.address = a;
    try_with(&product, vector, "D overlaps A");
    product.d.address = d;
    // C is not used without beta, and has to exist with it.
    let c = std::mem::take(&mut product.c.address);
    lt.cuda.ok(product.enqueue(&lt, Some(&vector.algorithm), 0));
    product.beta = 1.0;
    try_with(&product, vector, "C at 0x0");
    (product.d.address, product.c.address) = (address, address + 512);
    try_with(&product, vector, "D overlaps C");
    (product.beta, product.c.address, product.d.address) = (0.0, c, d);
    lt.cuda.ok(lt.describe(product.description, EPILOGUE, &4_u32.to_le_bytes()));
    try_with(&product, vector, "the bias at 0x0");
    lt.cuda.ok(lt.describe(product.description, BIAS_POINTER, &(d + 1).to_le_bytes()));
    try_with(&product, vector, "the bias at");
    lt.cuda.ok(lt.describe(product.description, BIAS_BATCH_STRIDE, &u64::MAX.to_le_bytes()));
    try_with(&product, vector, "batch stride 18446744073709551615 of the bias");
}

#[test]
fn workspace_that_overlaps_an_operand_is_refused() {
    let lt = Lt::start();
    let mut product = Product::plain(&lt, COMPUTE_32F, [32, 16, 64]);
    let split = product.algorithms(&lt).into_iter().find(|found| found.workspace > 0).unwrap();
    let (address, d) = (product.workspace.0, product.d.address);
    product.d.address = address + split.workspace as u64 - 16;
    let why = "the workspace of kernel cublaslt_f32_";
    refuses(&lt, product.enqueue(&lt, Some(&split.algorithm), 0), INVALID_VALUE, why);
    product.d.address = address + split.workspace as u64;
    lt.cuda.ok(product.enqueue(&lt, Some(&split.algorithm), 0));
    product.d.address = d;
}

#[test]
fn algorithms_are_checked_against_the_problem() {
    let lt = Lt::start();
    let small = Product::plain(&lt, COMPUTE_32F, [8, 8, 8]);
    let large = Product::plain(&lt, COMPUTE_32F, [64, 64, 512]);
    let tf32 = Product::plain(&lt, COMPUTE_FAST_TF32, [64, 64, 512]);
    let split = large.algorithms(&lt).into_iter().find(|found| found.workspace > 0).unwrap().algorithm;
    let why = "the algorithm was returned for another problem than 8 x 8 x 8, 1 batches, in f32";
    refuses(&lt, small.enqueue(&lt, Some(&split), 0), NOT_SUPPORTED, why);
    let why = "the algorithm was returned for another problem than 64 x 64 x 512, 1 batches, in tf32";
    refuses(&lt, tf32.enqueue(&lt, Some(&split), 0), NOT_SUPPORTED, why);
    let why = "the algorithm was not returned by the heuristic";
    refuses(&lt, large.enqueue(&lt, Some(&[0; 8]), 0), INVALID_VALUE, why);
}

#[test]
fn heuristic_respects_the_preference() {
    let lt = Lt::start();
    let product = Product::plain(&lt, COMPUTE_32F, [64, 64, 512]);
    let with = |attributes: &[(u32, &[u8])]| {
        let any_workspace = u64::MAX.to_le_bytes();
        let all: Vec<_> = [(MAX_WORKSPACE, &any_workspace[..])].iter().chain(attributes).copied().collect();
        product.heuristic_with(&lt, &all)
    };
    let (status, all) = with(&[]);
    lt.cuda.ok(status);
    // Without split sums.
    let (_, without_reduction) = with(&[(3, &0_u32.to_le_bytes())]);
    assert!(without_reduction.len() < all.len());
    assert!(without_reduction.iter().all(|found| found.workspace == 0));
    // Fewer waves.
    let limit = all.iter().map(|found| found.waves).fold(f32::MAX, f32::min);
    let (_, short) = with(&[(9, &limit.to_le_bytes())]);
    assert!(!short.is_empty() && short.len() < all.len());
    assert!(short.iter().all(|found| found.waves <= limit));
    // Operands aligned to their elements only: these algorithms accept them.
    let (_, scalar) = with(&[(MIN_ALIGNMENT_A, &4_u32.to_le_bytes())]);
    assert!(!scalar.is_empty() && scalar.len() < all.len());
    // Tensor cores only: none for strict f32. A correct program may ask.
    let before = lt.cuda.emulator.misuse();
    let (status, none) = with(&[(12, &(2_u64 | 2 << 8 | 4 << 16).to_le_bytes())]);
    assert_eq!((status, none.len()), (NOT_SUPPORTED, 0));
    assert_eq!(lt.cuda.emulator.misuse(), before);
    let preference = lt.cuda.make(|place| lt.cublasLtMatmulPreferenceCreate(place));
    assert_eq!(product.find(&lt, preference, 2).1.len(), 2);
    refuses(&lt, product.find(&lt, preference, 0).0, INVALID_VALUE, "0 algorithms are requested");
    refuses(
        &lt,
        product.find(&lt, 0, 1).0,
        INVALID_VALUE,
        "null instead of a handle of kind cuBLASLt preference",
    );
}

#[test]
fn epilogues_need_d_in_column_order() {
    let lt = Lt::start();
    let shape = Shape { by_rows: true, ..Shape::dense(8, 8) };
    let make = |seed| Matrices::new(&lt, Element::F32, shape, seed);
    let product = Product::new(&lt, COMPUTE_32F, [make(1), make(2), make(3), make(4)]);
    lt.cuda.ok(product.enqueue(&lt, None, 0));
    lt.cuda.ok(lt.describe(product.description, EPILOGUE, &2_u32.to_le_bytes()));
    refuses(&lt, product.enqueue(&lt, None, 0), NOT_SUPPORTED, "an epilogue with D in row order");
}

#[test]
fn handle_of_another_device_is_refused() {
    let lt = Lt::start_with(&[(Setting::Devices, 2)]);
    let product = Product::plain(&lt, COMPUTE_32F, [8, 8, 8]);
    let context = lt.cuda.make(|place| lt.cuda.cuDevicePrimaryCtxRetain(place, 1));
    lt.cuda.ok(lt.cuda.cuCtxSetCurrent(context));
    let why = "the handle is of device 0, and stream 2 is of another device";
    refuses(&lt, product.enqueue(&lt, None, 0), INVALID_VALUE, why);
}
