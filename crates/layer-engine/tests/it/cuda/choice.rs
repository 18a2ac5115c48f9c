//! The choice between functions of the engine and algorithms of the vendor's libraries.

use cuda_emulator::Setting;
use layer_engine::{
    CudaEngine, Engine, ImageLayout, KernelChoice, KernelPart, KernelSpec, Pass, Precision, Role, Shard,
};
use layer_graph::{Conv2d, Layer, Linear, MultiHeadAttention, Shape};

use super::on_emulator;
use crate::any_engine::{LayerRun, distance};
use crate::single_layer::layer;

fn parts(engine: &CudaEngine, layer: &Layer, pass: Pass) -> Vec<KernelPart> {
    let spec = KernelSpec::Layer { layer, pass, shard: Shard::whole(2) };
    engine.prepare(&spec, Precision::F32).unwrap().parts().to_vec()
}

fn convolution() -> Layer {
    layer(Conv2d::new(6, 3).padding(1), &[Shape::image(4, 5, 5)])
}

fn linear() -> Layer {
    layer(Linear::new(8), &[Shape::features(12)])
}

#[test]
fn each_product_is_computed_by_what_the_rule_says() {
    on_emulator(0, |engine, _| {
        for (layer, library) in [(convolution(), "cuDNN engine "), (linear(), "cuBLASLt ")] {
            for (pass, names) in [
                (Pass::Forward, &["convolution", "product"][..]),
                (Pass::Backward, &["input gradient", "weight gradient"]),
            ] {
                let own = parts(&engine.clone().with_choice(KernelChoice::Own), &layer, pass);
                let vendor = parts(&engine.clone().with_choice(KernelChoice::Vendor), &layer, pass);
                for (own, vendor) in own.iter().zip(&vendor) {
                    assert!(names.contains(&own.part), "{own:?}");
                    assert_eq!((own.part, own.chosen.as_str()), (vendor.part, "own"));
                    assert!(vendor.chosen.starts_with(library), "{vendor:?}");
                }
                assert_eq!(own.len(), vendor.len());
            }
        }
        // Emulated GPUs have libraries, and no times worth a choice.
        let default = parts(engine, &linear(), Pass::Forward);
        assert!(default[0].chosen.starts_with("cuBLASLt "), "{default:?}");
    });
}

#[test]
fn choices_by_time_are_kept_in_a_file() {
    let folder = std::env::temp_dir().join(format!("kernel-choices-{}", std::process::id()));
    let file = folder.join("kernels.tsv");
    on_emulator(0, |engine, _| {
        let chosen = |engine: &CudaEngine| {
            let fastest = engine.clone().with_choice(KernelChoice::Fastest).with_choices_in(&file);
            [convolution(), linear()].map(|layer| parts(&fastest, &layer, Pass::Backward)).concat()
        };
        let first = chosen(engine);
        for part in &first {
            let least = part.candidates.iter().filter_map(|candidate| candidate.time).min().unwrap();
            let times = part.candidates.iter().map(|candidate| (candidate.name.as_str(), candidate.time));
            let (_, time) = times.clone().find(|(name, _)| *name == part.chosen).unwrap();
            assert!(time.unwrap().as_secs_f64() <= 1.02 * least.as_secs_f64(), "{part:?}");
            assert!(times.clone().any(|(name, time)| name == "own" && time.is_some()), "{part:?}");
            assert!(part.candidates.len() > 1 && part.reason.starts_with("the fastest of "), "{part:?}");
        }
        let again = chosen(engine);
        assert_eq!(first.len(), again.len());
        for (first, again) in first.iter().zip(&again) {
            assert_eq!(first.chosen, again.chosen);
            assert!(again.reason.ends_with("at an earlier time"), "{again:?}");
            assert!(again.candidates.iter().all(|candidate| candidate.time.is_none()), "{again:?}");
        }
        // A file that names a candidate which is gone.
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(text.lines().count(), first.len());
        let gone: Vec<_> =
            text.lines().map(|line| format!("{}\tgone\n", line.split_once('\t').unwrap().0)).collect();
        std::fs::write(&file, gone.concat()).unwrap();
        assert_eq!(chosen(engine)[0].chosen, first[0].chosen);
        // With channels last, other shapes are timed, by the library only.
        for part in chosen(&engine.clone().with_image_layout(ImageLayout::ChannelsLast)) {
            let is_convolution = part.chosen.starts_with("cuDNN");
            assert_eq!(part.reason.ends_with("at an earlier time"), !is_convolution, "{part:?}");
            let has_own = part.candidates.iter().any(|candidate| candidate.name == "own");
            assert_eq!(has_own, !is_convolution, "{part:?}");
        }
    });
    let _ = std::fs::remove_dir_all(folder);
}

/// Engines of cuDNN 9.19 for 16 bits that use no tensor cores, of all directions.
const WITHOUT_TENSOR_CORES: [&str; 5] = ["0", "1", "20", "25", "28"];

/// In this layout, tensor cores need a workspace for transposes: here 0.1 to 1.7 GB.
#[test]
fn convolutions_of_ordinary_batches_have_tensor_core_candidates() {
    let resnet = layer(Conv2d::new(64, 3).padding(1).without_bias(), &[Shape::image(64, 56, 56)]);
    let vgg = layer(Conv2d::new(64, 3).padding(1), &[Shape::image(64, 224, 224)]);
    on_emulator(0, |engine, _| {
        let engine = engine.clone().with_choice(KernelChoice::Vendor);
        for (layer, samples) in [(&resnet, 64), (&vgg, 32)] {
            for pass in [Pass::Forward, Pass::Backward] {
                let spec = KernelSpec::Layer { layer, pass, shard: Shard::whole(samples) };
                for part in engine.prepare(&spec, Precision::Bf16).unwrap().parts() {
                    let names = part.candidates.iter().filter_map(|candidate| {
                        candidate.name.strip_prefix("cuDNN engine ")?.split(',').next()
                    });
                    let tensor_cores = names.filter(|name| !WITHOUT_TENSOR_CORES.contains(name)).count();
                    assert!(tensor_cores > 1, "{layer:?} of {samples}: {part:?}");
                }
            }
        }
    });
}

/// The operands of a kernel that fills the memory are there; there is no room for others.
#[test]
fn without_memory_for_timing_the_first_candidate_is_chosen() {
    on_emulator(0, |engine, emulator| {
        let layer = layer(Linear::new(8), &[Shape::features(4096)]);
        emulator.set(Setting::MemoryBytes, 64 << 10);
        let fastest = engine.clone().with_choice(KernelChoice::Fastest);
        let chosen = parts(&fastest, &layer, Pass::Forward);
        assert!(
            chosen[0].chosen.starts_with("cuBLASLt ") && chosen[0].reason.contains("no memory"),
            "{chosen:?}"
        );
        emulator.set(Setting::MemoryBytes, 1 << 30);
        assert!(parts(&fastest, &layer, Pass::Forward)[0].reason.starts_with("the fastest"), "{chosen:?}");
    });
}

/// Both passes of attention are chosen separately: the library's and those of the engine save and
/// read the same statistics.
#[test]
fn passes_of_attention_by_own_and_vendor_kernels_fit_together() {
    on_emulator(0, |engine, _| {
        let shape = [Shape::sequence(37, 3 * 2 * 16)];
        let (layer, shard) = (layer(MultiHeadAttention::new(2, true), &shape), Shard::whole(3));
        let [own, vendor] =
            [KernelChoice::Own, KernelChoice::Vendor].map(|choice| engine.clone().with_choice(choice));
        for (pass, part) in [
            (Pass::Forward, "attention"),
            (Pass::Infer, "attention"),
            (Pass::Backward, "gradient of attention"),
        ] {
            let spec = KernelSpec::Layer { layer: &layer, pass, shard };
            let chosen = |engine: &CudaEngine, precision| {
                let kernel = engine.prepare(&spec, precision).unwrap();
                (kernel.parts()[0].part, kernel.parts()[0].chosen.clone())
            };
            assert_eq!(chosen(&own, Precision::Bf16), (part, "own".to_owned()));
            assert!(engine.prepare(&spec, Precision::F32).unwrap().parts().is_empty());
            let by_vendor = chosen(&vendor, Precision::Bf16);
            assert!(by_vendor.0 == part && by_vendor.1.starts_with("cuDNN engine "), "{by_vendor:?}");
        }
        let mut all = Vec::new();
        for (forward, backward) in [(&own, &own), (&own, &vendor), (&vendor, &own), (&vendor, &vendor)] {
            let mut first = LayerRun::new(forward, Precision::Bf16, &layer, shard);
            let mut second = LayerRun::new(backward, Precision::Bf16, &layer, shard);
            first.run(Pass::Forward).unwrap();
            for role in [Role::Output, Role::Saved] {
                second.set(role, &first.values(role));
            }
            second.run(Pass::Backward).unwrap();
            all.push((first.values(Role::Saved), second.values(Role::InputGradient(0))));
        }
        for (saved, gradient) in &all[1..] {
            assert!(distance(saved, &all[0].0) < 1e-5);
            assert!(distance(gradient, &all[0].1) < 1e-2);
        }
    });
}

/// The first candidate of the input gradient in 16 bits transposes its operands into a workspace.
#[test]
fn without_memory_for_a_workspace_another_candidate_is_chosen() {
    on_emulator(0, |engine, emulator| {
        let engine = engine.clone().with_choice(KernelChoice::Vendor);
        let layer = layer(Conv2d::new(64, 3).padding(1).without_bias(), &[Shape::image(64, 32, 32)]);
        let input_gradient = || {
            let spec = KernelSpec::Layer { layer: &layer, pass: Pass::Backward, shard: Shard::whole(16) };
            engine.prepare(&spec, Precision::Bf16).unwrap().parts()[0].clone()
        };
        emulator.set(Setting::MemoryBytes, 1 << 30);
        let all = input_gradient();
        assert!(all.reason.starts_with("the library's first of "), "{all:?}");
        emulator.set(Setting::MemoryBytes, 1 << 20);
        let fitting = input_gradient();
        assert!(fitting.candidates.len() < all.candidates.len(), "{fitting:?}");
        assert!(fitting.reason.contains("exceed the free memory"), "{fitting:?}");
        assert!(fitting.candidates.iter().any(|candidate| candidate.name == fitting.chosen), "{fitting:?}");
    });
}

/// Without permission, no candidate is nondeterministic, and repetitions have the same bits. With
/// it, the library's first candidate for this input gradient is, and they differ by rounding.
#[test]
fn nondeterministic_candidates_need_permission() {
    on_emulator(0, |engine, _| {
        let layer = convolution();
        let run = |is_permitted| {
            let engine = engine.clone().with_choice(KernelChoice::Vendor).with_nondeterministic(is_permitted);
            let chosen = parts(&engine, &layer, Pass::Backward);
            let mut run = LayerRun::new(&engine, Precision::F32, &layer, Shard::whole(2));
            let gradients = [(); 2].map(|()| {
                run.step(true);
                run.values(Role::InputGradient(0))
            });
            (chosen, gradients)
        };
        let (chosen, [first, again]) = run(false);
        assert_eq!(first, again, "{chosen:?}");
        let (permitted, [first, again]) = run(true);
        let gradient =
            |parts: &[KernelPart]| parts.iter().find(|part| part.part == "input gradient").cloned();
        let (chosen, permitted) = (gradient(&chosen).unwrap(), gradient(&permitted).unwrap());
        assert!(
            !chosen.candidates.iter().any(|candidate| candidate.name == permitted.chosen),
            "{permitted:?}"
        );
        assert_ne!(first, again, "{permitted:?}");
        assert!(distance(&first, &again) < 1e-6);
    });
}

/// A kernel of a library is not captured before it has run: its first run loads what it needs.
#[test]
fn a_first_run_in_a_capture_is_an_error() {
    on_emulator(0, |engine, _| {
        let spec = KernelSpec::Layer { layer: &convolution(), pass: Pass::Forward, shard: Shard::whole(2) };
        let kernel = engine.prepare(&spec, Precision::F32).unwrap();
        let operands = [200, 6 * 4 * 9 + 6, 300].map(|elements| engine.allocate(elements).unwrap());
        let mut queue = engine.queue().unwrap();
        let stream = queue.stream().clone();
        let mut enqueued = Ok(());
        let captured = stream.capture::<cuda::Error>(|_| {
            enqueued = queue.launch(&kernel, &operands[..2], &operands[2..]);
            Ok(())
        });
        let message = enqueued.unwrap_err().to_string();
        assert!(message.contains("before it was run once"), "{message}");
        drop(captured);
        queue.launch(&kernel, &operands[..2], &operands[2..]).unwrap();
        stream
            .capture::<cuda::Error>(|_| {
                queue.launch(&kernel, &operands[..2], &operands[2..]).unwrap();
                Ok(())
            })
            .unwrap();
        engine.synchronize(&mut queue).unwrap();
    });
}
