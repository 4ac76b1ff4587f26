//! The programs in C, as they are, under valgrind, and with AddressSanitizer.

use std::path::Path;
use std::time::Duration;

use extant_testkit::{Cmd, Image, Need, TempDir, need, report};

use crate::compile;

/// How a program is run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Under {
    Valgrind,
    AddressSanitizer,
}

/// Compiles and runs a program; any finding makes it fail.
fn run(under: Under, dir: &TempDir, source: &str, args: &[&str]) -> String {
    let ran = match under {
        Under::Valgrind => {
            let program = compile(dir, source, &[]);
            Cmd::new("valgrind")
                .args(["-q", "--error-exitcode=9", "--leak-check=full"])
                .arg("--show-leak-kinds=definite,indirect")
                .args(["--errors-for-leak-kinds=definite,indirect"])
                .arg(program)
        }
        Under::AddressSanitizer => {
            let flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
            Cmd::new(compile(dir, source, &flags))
        }
    };
    ran.args(args)
        .limit(Duration::from_secs(3600))
        .ok()
        .unwrap()
        .out
}

fn tools(under: Under) -> bool {
    let valgrind = [
        Need::Tool("gcc"),
        Need::Tool("mke2fs"),
        Need::Tool("valgrind"),
    ];
    match under {
        Under::Valgrind => need(&valgrind),
        Under::AddressSanitizer => need(&valgrind[..2]),
    }
}

/// Each call once, on an image that the library makes.
fn every_call(under: Under) {
    if !tools(under) {
        return;
    }
    let dir = TempDir::new("interface").unwrap();
    let image = dir.join("disk.img");
    run(under, &dir, "interface.c", &[image.to_str().unwrap()]);
    Image::fsck_clean_at(&image).unwrap();
}

/// Arguments that no call accepts.
fn mistakes(under: Under) {
    if !tools(under) {
        return;
    }
    let (dir, image) = (
        TempDir::new("mistakes").unwrap(),
        Image::of_mib(16).make().unwrap(),
    );
    run(under, &dir, "mistakes.c", &[path(image.path())]);
    image.fsck_clean().unwrap();
}

/// Threads that compare their files with memory.
fn storm(under: Under) {
    if !tools(under) {
        return;
    }
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    // Half of the stage's time for each of the two.
    let seconds = number("EXTANT_SECONDS").map_or(0, |seconds| seconds / 2);
    let seed = number("EXTANT_SEED").unwrap_or(1);
    let (dir, image) = (
        TempDir::new("storm").unwrap(),
        Image::of_mib(64).make().unwrap(),
    );
    let (seconds, seed) = (seconds.to_string(), seed.to_string());
    let said = run(
        under,
        &dir,
        "storm.c",
        &[path(image.path()), &seconds, &seed],
    );
    image.fsck_clean().unwrap();
    if seconds != "0" {
        report(&format!("storm in C, seed {seed}: {}", said.trim()));
    }
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn every_call_under_valgrind() {
    every_call(Under::Valgrind);
}

#[test]
fn every_call_with_address_sanitizer() {
    every_call(Under::AddressSanitizer);
}

#[test]
fn mistakes_under_valgrind() {
    mistakes(Under::Valgrind);
}

#[test]
fn mistakes_with_address_sanitizer() {
    mistakes(Under::AddressSanitizer);
}

#[test]
fn storm_under_valgrind() {
    storm(Under::Valgrind);
}

#[test]
fn storm_with_address_sanitizer() {
    storm(Under::AddressSanitizer);
}
