//! The CPU engine on buffers that are no `Vec`s.

use layer_engine::{CpuEngine, Engine, EngineError, KernelSpec, Precision};

use crate::single_layer::CONTEXT;

#[test]
fn the_engine_runs_on_boxed_slices() {
    let engine = CpuEngine::<f32, Box<[f32]>>::new();
    let spec = KernelSpec::Sum { terms: 2, elements: 3 };
    let mut kernel = engine.prepare(&spec, Precision::F32).unwrap();
    let (a, b): (Box<[f32]>, Box<[f32]>) = (Box::new([1.0, 2.0, 3.0]), Box::new([10.0, 20.0, 30.0]));
    let mut sum = engine.allocate(5).unwrap();
    let error = engine.enqueue(&mut kernel, &[&a, &b], &mut [&mut sum], &CONTEXT, &mut ()).unwrap_err();
    assert!(matches!(error, EngineError::Operand { expected: 3, got: 5, .. }), "{error:?}");
    let mut sum = engine.allocate(3).unwrap();
    let address = sum.as_ptr();
    for _ in 0..2 {
        engine.enqueue(&mut kernel, &[&a, &b], &mut [&mut sum], &CONTEXT, &mut ()).unwrap();
    }
    assert_eq!((&*sum, sum.as_ptr()), (&[11.0, 22.0, 33.0][..], address));

    let mut host = [0.0; 2];
    engine.upload(&[7.0], &mut sum, &mut ()).unwrap();
    engine.download(&sum, &mut host, &mut ()).unwrap();
    assert_eq!(host[..], [7.0, 22.0]);
}
