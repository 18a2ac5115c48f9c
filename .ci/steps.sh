# Steps that `.ci/quick` and `.ci/run` share, and the code that runs steps and counts results. It is
# sourced, with the repository as the working directory.

failed=() step_times=()
log=$(mktemp) used=$(mktemp)
trap 'rm -f "$log" "$used"' EXIT
# All steps write to this descriptor: standard output and the log.
exec {out}> >(tee -a "$log")
tee_pid=$!

# Runs a step and records its time, by the clock and of processors, and its name if it fails. A step is a
# command or a function.
step() {
    echo "== $*" >&"$out"
    local start=$SECONDS took
    times >"$used"
    "$@" >&"$out" 2>&1 || failed+=("$*")
    times >>"$used"
    # Lines 2 and 4 are the times of ended children, such as: 1m2.345s 0m6.789s
    took="$((SECONDS - start)) s, $(awk -F '[ms ]+' '
        NR % 2 == 0 { all = 60 * ($1 + $3) + $2 + $4 - all } END { printf "%.0f s of processors", all }' "$used")"
    step_times+=("$took:  $*")
    echo "== $took" >&"$out"
}

# Checks the form of the text.
format_steps() {
    step cargo fmt --all --check
    step rustfmt --check --edition 2024 tests/consumers/*/src/main.rs
    step scripts/check-prose
}

# Runs the steps that every change has to pass, but for the tests.
quick_steps() {
    format_steps
    step cargo clippy --workspace --all-targets -- -D warnings
    step env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
}

# Installs rustfmt and clippy if they are missing.
components() {
    cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 ||
        rustup component add rustfmt clippy
}

# Prints the time of each step, failed and skipped checks, and the number of tests as the last line.
# Returns 1 if a step has failed.
summary() {
    exec {out}>&-
    wait "$tee_pid"
    printf '%s\n' "${step_times[@]}"
    local check
    for check in ${failed[@]+"${failed[@]}"}; do
        echo "FAILED: $check"
    done
    sed -n '/^SKIPPED: /p' "$log" | sort -u
    echo "$(sed -n '/^SKIPPED: /p' "$log" | sort -u | wc -l) checks skipped"
    # Tests of Rust, and of pytest, whose last line is such as: 2 failed, 90 passed, 1 skipped in 41.00s
    awk '/^test result: / { passed += $4; failed += $6; skipped += $8 }
         / in [0-9.]+s/ && /(passed|failed|error)/ && !/^test result/ {
             for (i = 1; i < NF; i++) {
                 if ($(i + 1) ~ /^passed/) passed += $i
                 if ($(i + 1) ~ /^(failed|error)/) failed += $i
                 if ($(i + 1) ~ /^skipped/) skipped += $i
             }
         }
         END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped }' "$log"
    [ ${#failed[@]} -eq 0 ]
}
