#!/bin/bash -eu
# Builds every fuzz target into $OUT, each with its inputs and options, and the seed images beside
# them. Called in a container of OSS-Fuzz, which sets SRC, OUT, SANITIZER and FUZZING_ENGINE.
cd "$SRC/extant"
[ "$FUZZING_ENGINE" = libfuzzer ] || {
    echo "only libFuzzer is supported" >&2
    exit 1
}
# The image's default compiler is a nightly one. Elsewhere TOOLCHAIN=nightly chooses it.
toolchain=${TOOLCHAIN:+"+$TOOLCHAIN"}
cargo $toolchain fuzz build --fuzz-dir fuzz --sanitizer "$SANITIZER" -O --debug-assertions
target=$(rustc -vV | sed -n 's/^host: //p')
built=${CARGO_TARGET_DIR:-fuzz/target}/$target/release

# The machines that run the targets have neither mke2fs nor debugfs. The flags are for targets.
corpus() {
    RUSTFLAGS='' cargo $toolchain run -q --manifest-path crates/hostile/Cargo.toml \
        --example corpus -- "$@"
}
mkdir -p "$OUT/extant-seeds"
corpus seeds "$OUT/extant-seeds"

for source in fuzz/targets/*.rs; do
    name=$(basename "$source" .rs)
    cp "$built/$name" "$OUT/"
    inputs=$(mktemp -d)
    [ ! -d "fuzz/corpus/$name" ] || cp -r "fuzz/corpus/$name/." "$inputs"
    # The C interface has no recipes of images: its inputs are calls.
    [ "$name" = c_interface ] || corpus "$name" "$inputs"
    # Made anew: zip adds to what is there.
    rm -f "$OUT/${name}_seed_corpus.zip"
    [ -z "$(ls -A "$inputs")" ] || (cd "$inputs" && zip -q -r "$OUT/${name}_seed_corpus.zip" .)
    rm -r "$inputs"
    printf '[libfuzzer]\nmax_len = 1500\ntimeout = 30\n' >"$OUT/$name.options"
done
