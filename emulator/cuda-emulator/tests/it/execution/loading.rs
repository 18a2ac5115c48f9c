//! Modules: errors in the text, variables and files.

use super::{Gpu, KERNELS, on_emulator, shape};
use cudarc::driver::{PushKernelArg, result, sys};
use cudarc::nvrtc::Ptx;
use std::{
    ffi::{CString, c_void},
    ptr,
};

/// Loads a module with a buffer for its error log. Returns the result and the log.
fn load_with_log(ptx: &str) -> (sys::CUresult, String) {
    let image = CString::new(ptx).unwrap();
    let mut log = [0_u8; 80];
    let mut module = ptr::null_mut();
    let mut options = [
        sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
        sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        sys::CUjit_option::CU_JIT_OPTIMIZATION_LEVEL,
    ];
    let mut values: [*mut c_void; 3] =
        [log.as_mut_ptr().cast(), ptr::without_provenance_mut(log.len()), ptr::without_provenance_mut(4)];
    // SAFETY: there is one value for each option, and the log has the given size.
    let code = unsafe {
        sys::cuModuleLoadDataEx(
            &raw mut module,
            image.as_ptr().cast(),
            3,
            options.as_mut_ptr(),
            values.as_mut_ptr(),
        )
    };
    let length = values[1] as usize;
    let text = String::from_utf8(log[..length.saturating_sub(1)].to_vec()).unwrap();
    if code == sys::CUresult::CUDA_SUCCESS {
        // SAFETY: it is unloaded once.
        unsafe { result::module::unload(module) }.unwrap();
    }
    (code, text)
}

#[test]
fn ptx_errors_are_logged_with_their_line() {
    on_emulator(|emulator| {
        let gpu = Gpu::new(0);
        assert_eq!(load_with_log(KERNELS), (sys::CUresult::CUDA_SUCCESS, String::new()));
        assert!(emulator.misuse().is_empty());
        let (code, log) = load_with_log(".version 8.0\n.target sm_80\n.entry broken(\n{ ret; }");
        assert_eq!(code, sys::CUresult::CUDA_ERROR_INVALID_PTX);
        assert!(log.starts_with("line 4: "), "{log}");
        let tensor = ".version 8.0\n.target sm_80\n.visible .entry tensor()\n{\n \
                      ldmatrix.sync.aligned.m8n8.x1 {%r1}, [%r2];\n}";
        let (code, log) = load_with_log(tensor);
        assert_eq!(code, sys::CUresult::CUDA_ERROR_NOT_SUPPORTED);
        assert!(log.starts_with("line 5: `ldmatrix"), "{log}");
        drop(gpu);
        assert_eq!(emulator.misuse().len(), 2, "{:?}", emulator.misuse());
        emulator.reset();
    });
}

#[test]
fn kernels_and_copies_access_module_variables() {
    on_emulator(|emulator| {
        let gpu = Gpu::new(0);
        let read = gpu.kernel("read_offset");
        let image = CString::new(KERNELS).unwrap();
        let mut found = gpu.stream.alloc_zeros::<u32>(1).unwrap();
        // SAFETY: the module lives until it is unloaded, and the variable belongs to it.
        unsafe {
            gpu.stream.launch_builder(&read).arg(&mut found).launch(shape(1, 1, 0)).unwrap();
            assert_eq!(gpu.stream.clone_dtoh(&found).unwrap(), [100]);
            let module = result::module::load_data(image.as_ptr().cast()).unwrap();
            let (address, bytes) = result::module::get_global(module, c"offset".into()).unwrap();
            assert_eq!(bytes, 4);
            result::memcpy_htod_sync(address, &[7_u32]).unwrap();
            let function = result::module::get_function(module, c"read_offset".into()).unwrap();
            let (mut place, _guard) = cudarc::driver::DevicePtr::device_ptr(&found, &gpu.stream);
            let mut arguments: [*mut c_void; 1] = [(&raw mut place).cast()];
            result::launch_kernel(function, (1, 1, 1), (1, 1, 1), 0, gpu.stream.cu_stream(), &mut arguments)
                .unwrap();
            assert_eq!(gpu.stream.clone_dtoh(&found).unwrap(), [7]);
            let absent = result::module::get_global(module, c"absent".into());
            assert_eq!(super::code(absent), sys::CUresult::CUDA_ERROR_NOT_FOUND);
            result::module::unload(module).unwrap();
            assert_eq!(
                super::code(result::memcpy_htod_sync(address, &[1_u32])),
                sys::CUresult::CUDA_ERROR_INVALID_VALUE,
                "the variable has gone with its module"
            );
        }
        drop((read, found, gpu));
        assert_eq!(emulator.misuse().len(), 1, "{:?}", emulator.misuse());
        emulator.reset();
    });
}

#[test]
fn modules_load_from_files() {
    on_emulator(|emulator| {
        let gpu = Gpu::new(0);
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/execution/kernels.ptx");
        let read =
            gpu.context.load_module(Ptx::from_file(path)).unwrap().load_function("read_offset").unwrap();
        let mut found = gpu.stream.alloc_zeros::<u32>(1).unwrap();
        // SAFETY: the argument matches the parameter.
        unsafe { gpu.stream.launch_builder(&read).arg(&mut found).launch(shape(1, 1, 0)) }.unwrap();
        assert_eq!(gpu.stream.clone_dtoh(&found).unwrap(), [100]);
        let absent = gpu.context.load_module(Ptx::from_file("/nowhere/kernels.ptx")).map(drop);
        assert_eq!(super::code(absent), sys::CUresult::CUDA_ERROR_FILE_NOT_FOUND);
        drop((read, found, gpu));
        assert!(
            emulator.misuse()[0].starts_with("cuModuleLoad: /nowhere/kernels.ptx: "),
            "{:?}",
            emulator.misuse()
        );
        emulator.reset();
    });
}
