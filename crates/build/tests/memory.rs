//! What a build costs in memory: by entries, not by contents.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use extant_archive::{Member, Writer, kind};
use extant_build::{Options, Silent, Source, build};
use extant_testkit::TempDir;
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// An archive of files of `size` bytes, in directories of 1000.
fn archive(path: &Path, files: u32, size: u64) {
    let out = BufWriter::new(File::create(path).unwrap());
    let mut writer = Writer::new(out);
    let content = vec![b'x'; usize::try_from(size).unwrap()];
    for number in 0..files {
        let member = Member {
            kind: kind::REGULAR,
            name: format!("directory {}/file {number}", number / 1000).into_bytes(),
            mode: 0o644,
            size,
            ..Member::default()
        };
        writer.append(&member, content.as_slice()).unwrap();
    }
    writer.finish().unwrap();
}

/// The most bytes that a build of such an archive holds at once.
fn peak(dir: &TempDir, files: u32, size: u64) -> usize {
    let (source, image) = (dir.join("archive"), dir.join("image"));
    archive(&source, files, size);
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let options = Options {
        threads: Some(2),
        ..Options::default()
    };
    let built = build(&[Source::Path(source)], &image, &options, &Silent).unwrap();
    let peak = MEMORY.peak_usage() - before;
    assert!(built.entries > u64::from(files));
    std::fs::remove_file(&image).unwrap();
    peak
}

#[test]
fn memory_grows_with_entries_by_a_constant_and_not_with_contents() {
    let dir = TempDir::new("build").unwrap();
    let few = peak(&dir, 60_000, 0);
    let many = peak(&dir, 120_000, 0);
    let each = (many - few) / 60_000;
    assert!(each < 300, "{each} bytes for an entry: {few}, {many}");
    // 10^7 members stay below 4 GiB by that.
    let large = peak(&dir, 16, 16 << 20);
    assert!(large < 16 << 20, "{large} bytes for 256 MiB of contents");
}
