//! cuDNN itself, without a GPU: the library that the variable `CUDNN_LIBRARY` names. Nothing is
//! emulated here.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cuda::{
    Convolution, ConvolutionShape, Cudnn, Determinism, DeviceProperties, Direction, Error, Layout, Numerics,
    Target,
};

const DIRECTIONS: [Direction; 3] = [Direction::Forward, Direction::InputGradient, Direction::WeightGradient];

/// Kinds of convolutions of the networks: name, samples, input and output channels, groups, side of
/// the input, kernel, stride, padding.
type Kind = (&'static str, usize, [usize; 2], usize, usize, [usize; 2], usize, [usize; 2]);

const KINDS: [Kind; 16] = [
    ("1x1", 32, [256, 1024], 1, 14, [1, 1], 1, [0, 0]),
    ("1x1, stride 2", 32, [256, 512], 1, 56, [1, 1], 2, [0, 0]),
    ("3x3", 32, [64, 64], 1, 56, [3, 3], 1, [1, 1]),
    ("3x3, 3 channels", 32, [3, 64], 1, 32, [3, 3], 1, [1, 1]),
    ("3x3, 1 channel", 8, [1, 16], 1, 8, [3, 3], 1, [1, 1]),
    ("3x3, stride 2", 32, [64, 128], 1, 56, [3, 3], 2, [1, 1]),
    ("3x3 without padding", 8, [32, 32], 1, 147, [3, 3], 1, [0, 0]),
    ("5x5", 32, [48, 64], 1, 35, [5, 5], 1, [2, 2]),
    ("7x7, stride 2", 32, [3, 64], 1, 224, [7, 7], 2, [3, 3]),
    ("3x3, 32 groups", 32, [128, 128], 32, 56, [3, 3], 1, [1, 1]),
    ("depthwise", 32, [144, 144], 144, 56, [3, 3], 1, [1, 1]),
    ("depthwise, stride 2", 32, [144, 144], 144, 56, [3, 3], 2, [1, 1]),
    ("1x7", 32, [192, 192], 1, 17, [1, 7], 1, [0, 3]),
    ("7x1", 32, [192, 192], 1, 17, [7, 1], 1, [3, 0]),
    ("patches of 16x16", 32, [3, 768], 1, 224, [16, 16], 16, [0, 0]),
    ("3x3 on 2x2", 128, [512, 512], 1, 2, [3, 3], 1, [1, 1]),
];

/// Returns the path of the library, or prints that the test is skipped.
fn library() -> Option<PathBuf> {
    let path = std::env::var_os("CUDNN_LIBRARY").map(PathBuf::from);
    if path.is_none() {
        println!("SKIPPED: cuDNN itself: CUDNN_LIBRARY is not set");
    }
    path
}

fn shape(kind: &Kind, layout: Layout, direction: Direction) -> ConvolutionShape {
    let &(_, samples, [in_channels, out_channels], groups, side, kernel, stride, padding) = kind;
    ConvolutionShape {
        samples,
        in_channels,
        out_channels,
        groups,
        input: [side; 2],
        kernel,
        stride: [stride; 2],
        padding,
        dilation: [1; 2],
        layout,
        direction,
    }
}

#[test]
fn all_kinds_of_convolutions_have_plans_without_a_gpu() {
    let Some(path) = library() else { return };
    let cudnn = Cudnn::open_first_of(&[path]).unwrap();
    assert!(cudnn.version() >= 90_000, "{}", cudnn.version());
    let h100 = DeviceProperties::h100();
    let (mut searches, mut fewest) = (0, usize::MAX);
    for kind in &KINDS {
        for direction in DIRECTIONS {
            for (numerics, layout) in [
                (Numerics::F32, Layout::Nchw),
                (Numerics::F32, Layout::Nhwc),
                (Numerics::Tf32, Layout::Nchw),
                (Numerics::Tf32, Layout::Nhwc),
                (Numerics::Bf16, Layout::Nhwc),
            ] {
                let shape = shape(kind, layout, direction);
                let search = |determinism, limit| {
                    let target = Target::Properties(&h100);
                    cudnn.convolutions(target, &shape, numerics, determinism, limit).unwrap()
                };
                let case = format!("{}, {direction:?}, {numerics:?}, {layout:?}", kind.0);
                let deterministic = search(Determinism::Deterministic, usize::MAX);
                let any = search(Determinism::Any, usize::MAX);
                assert!(!deterministic.is_empty(), "{case}");
                assert!(any.len() >= deterministic.len(), "{case}");
                let mut names: Vec<_> = any.iter().map(Convolution::name).collect();
                names.sort();
                names.dedup();
                assert_eq!(names.len(), any.len(), "{case}: names are not unique");
                // A limit leaves exactly the plans within it.
                let limit = any.iter().map(Convolution::workspace_bytes).max().unwrap() / 2;
                let within = any.iter().filter(|plan| plan.workspace_bytes() <= limit).count();
                assert_eq!(search(Determinism::Any, limit).len(), within, "{case}");
                fewest = fewest.min(deterministic.len());
                searches += 1;
            }
        }
    }
    println!("{searches} cases, each with at least {fewest} deterministic plans");
}

/// The engines of strict f32 are fewer than those of TF32, which may use tensor cores.
#[test]
fn strict_f32_excludes_engines_that_tf32_has() {
    let Some(path) = library() else { return };
    let cudnn = Cudnn::open_first_of(&[path]).unwrap();
    let h100 = DeviceProperties::h100();
    let shape = shape(&KINDS[2], Layout::Nchw, Direction::Forward);
    let names = |numerics| -> Vec<String> {
        let found =
            cudnn.convolutions(Target::Properties(&h100), &shape, numerics, Determinism::Any, usize::MAX);
        found.unwrap().iter().map(Convolution::name).collect()
    };
    let (strict, tf32) = (names(Numerics::F32), names(Numerics::Tf32));
    assert!(
        strict.len() < tf32.len() && strict.iter().all(|name| tf32.contains(name)),
        "{strict:?} {tf32:?}"
    );
}

/// The child of the next test: opens cuDNN, and would end by a signal if it aborted.
#[test]
#[ignore = "run by cudnn_without_cublaslt_is_an_error"]
fn child_opens_and_searches() {
    let path = library().unwrap();
    let found = Cudnn::open_first_of(&[path]).and_then(|cudnn| {
        let shape = shape(&KINDS[2], Layout::Nchw, Direction::Forward);
        let h100 = DeviceProperties::h100();
        cudnn.convolutions(Target::Properties(&h100), &shape, Numerics::F32, Determinism::Any, usize::MAX)
    });
    match found {
        Ok(plans) => println!("FOUND {}", plans.len()),
        Err(Error::Unavailable { library, reason }) => println!("UNAVAILABLE {library}: {reason}"),
        Err(error) => panic!("{error:?}"),
    }
}

/// Runs the child with a copy of cuDNN's folder in `folder`, and returns what it prints.
fn child(cudnn: &Path, folder: &Path, variables: &[(&str, OsString)]) -> String {
    let lib = folder.join("cudnn/lib");
    fs::create_dir_all(&lib).unwrap();
    for entry in cudnn.parent().unwrap().read_dir().unwrap() {
        let entry = entry.unwrap();
        let link = lib.join(entry.file_name());
        if !link.exists() {
            std::os::unix::fs::symlink(entry.path().canonicalize().unwrap(), link).unwrap();
        }
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child_opens_and_searches", "--ignored", "--nocapture"]);
    for removed in ["CUBLASLT_LIBRARY", "NVRTC_LIBRARY", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH"] {
        command.env_remove(removed);
    }
    command.env("CUDNN_LIBRARY", lib.join(cudnn.file_name().unwrap())).env("CUDA_HOME", folder);
    let output = command.envs(variables.iter().cloned()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn cudnn_without_cublaslt_is_an_error() {
    let Some(path) = library() else { return };
    let folder = std::env::temp_dir().join(format!("cudnn-alone-{}", std::process::id()));
    let alone = child(&path, &folder, &[]);
    if alone.contains("FOUND") {
        println!("SKIPPED: cuDNN without cuBLASLt: the loader finds it");
    } else {
        for part in ["UNAVAILABLE cuDNN: ", "needs cuBLASLt: ", "libcublasLt.so.", "CUBLASLT_LIBRARY"] {
            assert!(alone.contains(part), "{part}: {alone}");
        }
        // A file that is there under another name does not help cuDNN.
        let other = [("CUBLASLT_LIBRARY", "libc.so.6".into())];
        assert!(child(&path, &folder, &other).contains("needs cuBLASLt: "));
    }
    if let (Some(cublaslt), Some(nvrtc)) =
        (std::env::var_os("CUBLASLT_LIBRARY"), std::env::var_os("NVRTC_LIBRARY"))
    {
        let variables = [("CUBLASLT_LIBRARY", cublaslt.clone())];
        assert!(alone.contains("FOUND") || child(&path, &folder, &variables).contains("needs NVRTC: "));
        let variables = [("CUBLASLT_LIBRARY", cublaslt), ("NVRTC_LIBRARY", nvrtc)];
        let found = child(&path, &folder, &variables);
        assert!(found.contains("FOUND") && !found.contains("FOUND 0"), "{found}");
    } else {
        println!(
            "SKIPPED: cuDNN with cuBLASLt by its variable: CUBLASLT_LIBRARY or NVRTC_LIBRARY is not set"
        );
    }
    fs::remove_dir_all(&folder).unwrap();
}
