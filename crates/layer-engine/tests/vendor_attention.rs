//! Plans of cuDNN itself for attention in the networks of the zoo, which need no GPU: the library
//! that the variable `CUDNN_LIBRARY` names, and the emulated one. cuDNN compiles its engines, and
//! loads them with the emulated driver.
#![cfg(feature = "cuda")]

use std::collections::BTreeSet;
use std::time::Instant;

use cuda::{Attention, AttentionPass, AttentionShape, Cudnn, Determinism, DeviceProperties, Target};
use cuda_emulator::Emulator;
use layer_graph::{LayerKind, zoo};

/// Returns the different attention layers of the zoo: positions, heads, width, and whether they are
/// causal.
fn attentions() -> BTreeSet<(usize, usize, usize, bool)> {
    let mut found = BTreeSet::new();
    for name in zoo::names() {
        for (_, layer) in zoo::model(name).unwrap().layers() {
            if let LayerKind::MultiHeadAttention(rule) = layer.kind() {
                let (positions, features) = layer.output_shape().as_sequence().unwrap();
                found.insert((positions, rule.heads, features / rule.heads, rule.causal));
            }
        }
    }
    found
}

/// Returns the engines of deterministic plans for an H100.
fn engines(cudnn: &Cudnn, shape: &AttentionShape) -> BTreeSet<i64> {
    let (h100, determinism) = (DeviceProperties::h100(), Determinism::Deterministic);
    let plans = cudnn.attentions(Target::Properties(&h100), shape, determinism, usize::MAX).unwrap();
    plans.iter().map(Attention::engine).collect()
}

/// The emulated library has the engines that cuDNN has.
#[test]
fn attention_of_the_zoo_has_the_same_deterministic_engines_in_both_libraries() {
    let mut shapes: Vec<_> = attentions().into_iter().map(|shape| (shape, true)).collect();
    assert!(shapes.contains(&((197, 12, 64, false), true)) && shapes.len() > 1, "{shapes:?}");
    shapes.extend([((17, 3, 24, true), true), ((65, 1, 136, false), true), ((17, 3, 20, true), false)]);
    let emulator = Emulator::library().unwrap();
    let emulated = Cudnn::open_first_of(&[emulator]).unwrap();
    let real = std::env::var_os("CUDNN_LIBRARY").map(|path| Cudnn::open_first_of(&[path.into()]).unwrap());
    if real.is_none() {
        println!("SKIPPED: cuDNN itself: CUDNN_LIBRARY is not set");
    }
    for ((positions, heads, width, causal), is_supported) in shapes {
        for pass in [AttentionPass::Forward, AttentionPass::Backward] {
            let shape = AttentionShape { samples: 8, positions, heads, width, causal, pass };
            let found = engines(&emulated, &shape);
            assert_eq!(!found.is_empty(), is_supported, "{shape:?}");
            if let Some(real) = &real {
                let start = Instant::now();
                assert_eq!(engines(real, &shape), found, "{shape:?}");
                println!("{shape:?}: {found:?} in {:.1} s", start.elapsed().as_secs_f64());
            }
        }
    }
}
