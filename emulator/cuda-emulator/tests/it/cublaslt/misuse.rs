//! Statuses and reports of cuBLASLt, and failing calls.

use super::{
    BATCH_COUNT, BIAS_BATCH_STRIDE, BIAS_POINTER, COMPUTE_32F, COMPUTE_FAST_TF32, EPILOGUE, Element, Lt,
    MAX_WORKSPACE, Matrices, ORDER, Product, Shape, TRANSA,
};
use cuda_emulator::Setting;
use std::ptr;

const NOT_INITIALIZED: u32 = 1;
const ALLOC_FAILED: u32 = 3;
const INVALID_VALUE: u32 = 7;
const NOT_SUPPORTED: u32 = 15;

/// `CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES`.
const MIN_ALIGNMENT_A: u32 = 5;

/// Call that sets an attribute to the given bytes.
type Set<'a> = &'a dyn Fn(u32, &[u8]) -> u32;
/// Call that destroys an object.
type Destroy = fn(&Lt, usize) -> u32;

/// Checks that a call returned a status and reported `why`.
#[track_caller]
fn refuses(lt: &Lt, status: u32, expected: u32, why: &str) {
    let misuse = lt.cuda.emulator.misuse();
    let last = misuse.last().map_or("", String::as_str);
    assert!(last.contains(why), "{last:?} instead of {why:?}");
    assert_eq!(status, expected, "{last}");
}

#[test]
fn version_and_status_texts_are_those_of_cublaslt_13_1() {
    let lt = Lt::start();
    assert_eq!(lt.version(), 130_100);
    assert_eq!(lt.status_text(7), "an unsupported value or parameter was passed to the function");
    assert_eq!(lt.status_text(2), "unrecognized status");
    lt.cuda.end();
}

/// Sizes that cuBLASLt 13.1 accepts for the attributes of a kind of descriptor, by attribute.
#[test]
fn attributes_have_the_sizes_of_cublaslt_13_1() {
    let lt = Lt::start();
    let product = Product::plain(&lt, COMPUTE_32F, [8, 8, 8]);
    let preference = lt.cuda.make(|place| lt.cublasLtMatmulPreferenceCreate(place));
    let of_products: &[(u32, usize)] = &[
        (0, 4),
        (1, 4),
        (2, 4),
        (3, 4),
        (4, 4),
        (5, 4),
        (6, 4),
        (7, 4),
        (8, 8),
        (10, 8),
        (11, 8),
        (12, 8),
        (13, 8),
        (14, 8),
        (15, 4),
        (16, 4),
        (17, 8),
        (18, 8),
        (19, 8),
        (20, 8),
        (21, 8),
        (22, 4),
        (23, 8),
        (24, 8),
        (25, 1),
        (26, 4),
        (31, 4),
        (32, 4),
        (33, 4),
        (34, 4),
        (35, 4),
        (36, 8),
        (37, 4),
        (38, 8),
    ];
    let of_layouts: &[(u32, usize)] =
        &[(0, 4), (1, 4), (2, 8), (3, 8), (4, 8), (5, 4), (6, 8), (7, 8), (8, 4)];
    let of_preferences: &[(u32, usize)] =
        &[(0, 4), (1, 8), (3, 4), (5, 4), (6, 4), (7, 4), (8, 4), (9, 4), (12, 8)];
    let kinds: [(Set<'_>, &[(u32, usize)]); 3] = [
        (&|attribute, value| lt.describe(product.description, attribute, value), of_products),
        (&|attribute, value| lt.lay_out(product.a.layout, attribute, value), of_layouts),
        (&|attribute, value| lt.prefer(preference, attribute, value), of_preferences),
    ];
    for (set, accepted) in kinds {
        for (attribute, bytes) in
            (0..45).flat_map(|attribute| [0, 1, 2, 4, 8, 16].map(|bytes| (attribute, bytes)))
        {
            let expected = if accepted.contains(&(attribute, bytes)) { 0 } else { INVALID_VALUE };
            assert_eq!(set(attribute, &vec![0; bytes]), expected, "attribute {attribute}, {bytes} bytes");
        }
    }
    refuses(
        &lt,
        lt.describe(product.description, 9, &[0; 4]),
        INVALID_VALUE,
        "attribute 9 of cuBLASLt product",
    );
    refuses(
        &lt,
        lt.describe(product.description, TRANSA, &[0; 8]),
        INVALID_VALUE,
        "cublasLtMatmulDescSetAttribute: 8 bytes for the attribute TRANSA, which has 4: \
         CUBLAS_STATUS_INVALID_VALUE",
    );
    let null = lt.cublasLtMatmulDescSetAttribute(product.description, TRANSA, ptr::null(), 4);
    refuses(&lt, null, INVALID_VALUE, "buf is null");
    lt.cuda.ok(lt.cublasLtMatmulPreferenceDestroy(preference));
}

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

/// Calls all functions that return a status, and destroys what was created. Returns the first
/// status that is not 0, or 0.
fn all_calls(lt: &Lt) -> u32 {
    let (address, bytes) = (lt.upload(&[0; 1024]), 1 << 16);
    let workspace = lt.upload(&vec![0; bytes]);
    let [mut handle, mut description, mut layout, mut preference] = [0; 4];
    let checked = |status: u32| if status == 0 { Ok(()) } else { Err(status) };
    let mut calls = || {
        checked(lt.cublasLtCreate(&raw mut handle))?;
        checked(lt.cublasLtMatmulDescCreate(&raw mut description, COMPUTE_32F, 0))?;
        checked(lt.describe(description, TRANSA, &1_u32.to_le_bytes()))?;
        checked(lt.cublasLtMatrixLayoutCreate(&raw mut layout, 0, 8, 8, 8))?;
        checked(lt.lay_out(layout, ORDER, &0_u32.to_le_bytes()))?;
        checked(lt.cublasLtMatmulPreferenceCreate(&raw mut preference))?;
        checked(lt.prefer(preference, MAX_WORKSPACE, &bytes.to_le_bytes()))?;
        let (mut found, mut count) = ([super::Found::default(); 4], 0);
        let [a, b, c, d] = [layout; 4];
        checked(lt.cublasLtMatmulAlgoGetHeuristic(
            handle,
            description,
            a,
            b,
            c,
            d,
            preference,
            4,
            found.as_mut_ptr(),
            &raw mut count,
        ))?;
        let [x, y, z] = [0, 256, 512].map(|offset| address + offset);
        checked(lt.cublasLtMatmul(
            handle,
            description,
            &1.0,
            x,
            a,
            y,
            b,
            &0.0,
            z,
            c,
            z,
            d,
            &raw const found[0].algorithm,
            workspace,
            bytes,
            0,
        ))
    };
    let mut status = calls().err().unwrap_or(0);
    let destructions: [(usize, Destroy); 4] = [
        (preference, Lt::cublasLtMatmulPreferenceDestroy),
        (layout, Lt::cublasLtMatrixLayoutDestroy),
        (description, Lt::cublasLtMatmulDescDestroy),
        (handle, Lt::cublasLtDestroy),
    ];
    for (object, destroy) in destructions.into_iter().filter(|(object, _)| *object != 0) {
        let destroyed = destroy(lt, object);
        status = if status == 0 { destroyed } else { status };
    }
    for address in [address, workspace] {
        lt.cuda.ok(lt.cuda.cuMemFree_v2(address));
    }
    status
}

#[test]
fn each_call_fails_in_turn_without_leaks() {
    /// `CUDA_ERROR_OUT_OF_MEMORY`, which becomes `CUBLAS_STATUS_ALLOC_FAILED`.
    const OUT_OF_MEMORY: u32 = 2;
    let lt = Lt::start();
    assert_eq!(all_calls(&lt), 0);
    let log = lt.cuda.emulator.log();
    lt.cuda.end();
    let names = log.iter().filter_map(|line| line.split([' ', ':']).nth(1)).enumerate();
    let calls: Vec<_> = names.filter(|(_, name)| name.starts_with("cublasLt")).collect();
    assert_eq!(calls.len(), 13, "all but those that name the version and statuses");
    for (index, name) in calls {
        let lt = Lt::start();
        lt.cuda.emulator.fail_call(index as u64 + 1, OUT_OF_MEMORY);
        assert_eq!(all_calls(&lt), ALLOC_FAILED, "{name}");
        let line = lt.cuda.emulator.log()[index].clone();
        assert_eq!(line, format!("{} {name}: CUBLAS_STATUS_ALLOC_FAILED (injected)", index + 1));
        lt.cuda.end();
    }
}
