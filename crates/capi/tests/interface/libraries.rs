//! The installed files: a program that finds the library by pkg-config, and one in C++.

use extant_testkit::{Cmd, Image, Need, TempDir, need};

use crate::{crate_dir, libraries};

#[test]
fn the_example_builds_with_pkg_config_and_runs() {
    if !need(&[
        Need::Tool("gcc"),
        Need::Tool("pkg-config"),
        Need::Tool("e2fsck"),
    ]) {
        return;
    }
    let (lib, dir) = (libraries(), TempDir::new("example").unwrap());
    let flags = Cmd::new("pkg-config")
        .args(["--cflags", "--libs", "extant"])
        .env("PKG_CONFIG_PATH", &lib);
    let flags = flags.ok().unwrap().out;
    let program = dir.join("hello");
    let example = crate_dir().join("examples/hello.c");
    let compiled = Cmd::new("gcc").args(["-Wall", "-Wextra", "-Werror"]);
    let compiled = compiled.arg(&example).arg("-o").arg(&program);
    compiled.args(flags.split_whitespace()).ok().unwrap();
    let image = dir.join("disk.img");
    let ran = Cmd::new(&program).arg(&image).env("LD_LIBRARY_PATH", &lib);
    assert_eq!(ran.ok().unwrap().out, "hello, ext4\n");
    Image::fsck_clean_at(&image).unwrap();
    // The image holds something now, and stays as it is.
    let again = Cmd::new(&program).arg(&image).env("LD_LIBRARY_PATH", &lib);
    let again = again.run().unwrap();
    assert_eq!(again.code, Some(1));
    assert!(again.err.contains("holds"), "{}", again.err);
    let linked = Cmd::new("readelf").arg("-d").arg(&program).ok().unwrap();
    assert!(linked.out.contains("[libextant.so.0.1]"), "{}", linked.out);
}

#[test]
fn the_header_is_cxx_and_strict_c() {
    if !need(&[Need::Tool("gcc"), Need::Tool("g++")]) {
        return;
    }
    let header = crate_dir().join("include/extant.h");
    let strict = ["-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror"];
    for (compiler, standard) in [
        ("gcc", "-std=c99"),
        ("gcc", "-std=c17"),
        ("g++", "-std=c++11"),
    ] {
        let language = if compiler == "gcc" { "c" } else { "c++" };
        let checked = Cmd::new(compiler).args(strict).arg(standard);
        // Strict C hides ssize_t and struct timespec unless POSIX is asked for.
        let checked = checked.args(["-D_POSIX_C_SOURCE=200809L", "-x", language]);
        checked.arg(&header).ok().unwrap();
    }
}
