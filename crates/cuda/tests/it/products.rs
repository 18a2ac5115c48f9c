//! Products by cuBLASLt.

use cuda::{CublasLt, Error, Numerics, ProductShape};
use cuda_emulator::Emulator;

use super::open;

#[test]
fn a_file_that_is_not_cublaslt_is_a_one_line_error_with_the_missing_functions() {
    let error = CublasLt::open_first_of(&["libc.so.6".into()]).unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, Error::Unavailable { library: "cuBLASLt", .. }), "{error:?}");
    assert!(message.contains("cublasLtCreate") && message.contains("cublasLtMatmul"), "{message}");
    let message = CublasLt::open_first_of(&["/nowhere/libcublasLt.so".into()]).unwrap_err().to_string();
    assert!(message.contains("CUBLASLT_LIBRARY") && message.lines().count() == 1, "{message}");
}

/// The real library finds no driver that it can use: its error is returned by name.
#[test]
fn the_real_library_without_a_gpu_returns_an_error_that_names_the_function() {
    let Some(file) = std::env::var_os("CUBLASLT_LIBRARY") else {
        println!("SKIPPED: the real cuBLASLt: CUBLASLT_LIBRARY is not set");
        return;
    };
    let library = CublasLt::open_first_of(&[file.into()]).unwrap();
    assert!(library.version() >= 120_000, "{}", library.version());
    // The library may call the emulated driver, which other tests check for misuse meanwhile.
    let _emulator = Emulator::new().unwrap();
    let shape = ProductShape {
        rows: 16,
        columns: 16,
        depth: 16,
        a_transposed: false,
        b_transposed: false,
        batch: 1,
        bias: false,
    };
    let context = open();
    let error = library.products(&context, &shape, Numerics::F32, 0, 4).unwrap_err();
    let Error::Library { library: "cuBLASLt", call: "cublasLtCreate", code, text } = &error else {
        panic!("{error:?}")
    };
    assert!(*code != 0 && !text.is_empty(), "{error}");
    assert!(error.to_string().starts_with("cuBLASLt: cublasLtCreate: "), "{error}");
    context.close().unwrap();
}
