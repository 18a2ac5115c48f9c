//! Calls of cuBLASLt without misuse of their order: attributes, texts, and failing calls.
#![allow(unsafe_code)]

use super::{COMPUTE_32F, Found, INVALID_VALUE, Lt, MAX_WORKSPACE, ORDER, Product, TRANSA, refuses};
use libloading::Library;
use std::{collections::BTreeSet, ptr};

/// `CUBLAS_STATUS_ALLOC_FAILED`.
const ALLOC_FAILED: u32 = 3;

/// Call that sets an attribute to the given bytes.
type Set<'a> = &'a dyn Fn(u32, &[u8]) -> u32;
/// Call that destroys an object.
type Destroy = fn(&Lt, usize) -> u32;

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

/// Sizes of the attributes of algorithms of cuBLASLt 13.1, by attribute; 0 for those that it lacks.
const ALGORITHM_SIZES: [usize; 12] = [4, 4, 4, 4, 4, 4, 4, 2, 2, 0, 2, 0];

/// Reads an attribute of an algorithm: the status, and the value in the low-order bytes.
type Read<'a> = &'a dyn Fn(u32, usize) -> (u32, u64);

fn check_sizes(read: Read<'_>) {
    for (attribute, &size) in (0..).zip(&ALGORITHM_SIZES) {
        for bytes in [1, 2, 4, 8] {
            let expected = if bytes == size { 0 } else { INVALID_VALUE };
            assert_eq!(read(attribute, bytes).0, expected, "attribute {attribute}, {bytes} bytes");
        }
    }
}

#[test]
fn attributes_identify_algorithms() {
    let lt = Lt::start();
    let product = Product::plain(&lt, COMPUTE_32F, [256, 256, 256]);
    let (status, found) = product.heuristic(&lt, 1 << 24);
    assert!(status == 0 && found.len() > 4, "{found:?}");
    let read = |algorithm: &[u64; 8], attribute, bytes| {
        let mut value = 0_u64;
        let to = (&raw mut value).cast();
        let status =
            lt.cublasLtMatmulAlgoConfigGetAttribute(algorithm, attribute, to, bytes, ptr::null_mut());
        (status, value)
    };
    let mut seen = BTreeSet::new();
    for found in &found {
        let algorithm = &found.algorithm;
        let [id, tile, splits] = [0, 1, 2].map(|attribute| read(algorithm, attribute, 4).1);
        assert!(seen.insert(id) && tile > 0);
        assert_eq!(splits > 1, found.workspace > 0);
    }
    let algorithm = &found[0].algorithm;
    check_sizes(&|attribute, bytes| read(algorithm, attribute, bytes));
    let mut size = 0;
    let get = |algorithm, attribute, size| {
        lt.cublasLtMatmulAlgoConfigGetAttribute(algorithm, attribute, ptr::null_mut(), 0, size)
    };
    lt.cuda.ok(get(algorithm, 7, &raw mut size));
    assert_eq!(size, 2);
    refuses(&lt, get(algorithm, 0, ptr::null_mut()), INVALID_VALUE, "sizeWritten is null");
    refuses(&lt, get(ptr::null(), 0, &raw mut size), INVALID_VALUE, "algo is null");
    refuses(&lt, get(&[0; 8], 0, &raw mut size), INVALID_VALUE, "was not returned by the heuristic");
}

/// The sizes are those of the real library, which needs no device for that.
#[test]
fn attributes_of_algorithms_have_the_sizes_of_the_real_library() {
    type Get = unsafe extern "C" fn(*const [u64; 8], u32, *mut u64, usize, *mut usize) -> u32;
    let Some(file) = std::env::var_os("CUBLASLT_LIBRARY") else {
        println!("SKIPPED: cuBLASLt itself: CUBLASLT_LIBRARY is not set");
        return;
    };
    // SAFETY: the library is cuBLASLt, whose function has this type. It writes at most 8 bytes.
    unsafe {
        let library = Library::new(file).unwrap();
        let get = library.get::<Get>("cublasLtMatmulAlgoConfigGetAttribute").unwrap();
        check_sizes(&|attribute, bytes| {
            let mut value = 0;
            (get(&[0; 8], attribute, &raw mut value, bytes, ptr::null_mut()), value)
        });
        // Its finalisers would run at the end of each test.
        std::mem::forget(library);
    }
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
        let (mut found, mut count) = ([Found::default(); 4], 0);
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
