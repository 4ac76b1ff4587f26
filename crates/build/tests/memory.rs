//! Memory of a build: by entries, not by contents.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use extant_archive::{Member, Writer, kind};
use extant_blockdev::BlockDevice;
use extant_build::{Options, Silent, Source, VirtualImage, build};
use extant_testkit::{Image, Need, TempDir, need};
use extant_units::DevOff;
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

/// Held by the test that measures: what others allocate meanwhile would count.
static MEASURING: Mutex<()> = Mutex::new(());

/// The most bytes that a build of such an archive holds at once. The image stays.
fn peak(dir: &TempDir, files: u32, size: u64) -> usize {
    let _alone = MEASURING.lock().unwrap_or_else(PoisonError::into_inner);
    let (source, image) = (dir.join("archive"), dir.join("image"));
    // An image in its place would be refused.
    let _ = std::fs::remove_file(&image);
    archive(&source, files, size);
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let options = Options {
        threads: Some(2),
        ..Options::default()
    };
    let built = build(&[Source::Path(source)], &image, &options, &Silent).unwrap();
    let peak = MEMORY.peak_usage() - before;
    // The root, lost+found, and directories beside them.
    let dirs = u64::from(files.div_ceil(1000));
    assert_eq!(built.entries, 2 + u64::from(files) + dirs);
    peak
}

#[test]
fn memory_grows_with_entries_by_a_constant_and_not_with_contents() {
    let dir = TempDir::new("build").unwrap();
    let few = peak(&dir, 60_000, 0);
    let many = peak(&dir, 120_000, 0);
    let each = (many - few) / 60_000;
    assert!(each < 300, "{each} bytes for an entry: {few}, {many}");
    let large = peak(&dir, 16, 16 << 20);
    assert!(large < 16 << 20, "{large} bytes for 256 MiB of contents");
}

/// Members of the long archive, where `EXTANT_MEMBERS` does not say; the soak has 10^7.
const MEMBERS: u32 = 500_000;

#[test]
fn a_long_archive_takes_memory_by_its_members_and_gives_a_sound_image() {
    if !need(&[Need::Tool("e2fsck")]) {
        return;
    }
    let asked = std::env::var("EXTANT_MEMBERS").map(|words| words.parse().unwrap());
    let members = asked.unwrap_or(MEMBERS);
    let dir = TempDir::new("build").unwrap();
    let peak = peak(&dir, members, 0);
    // 10^7 members stay below 4 GiB by that. Lists double as they grow, so it is more than the
    // growth above for some numbers of members.
    let each = peak / usize::try_from(members).unwrap();
    assert!(each < 400, "{each} bytes for a member: {peak}");
    Image::fsck_clean_at(&dir.join("image")).unwrap();
}

/// An image that is not written has its metadata in memory, and no contents: neither when it is
/// planned nor when it is read.
#[test]
fn a_virtual_image_takes_memory_by_its_metadata() {
    let dir = TempDir::new("virtual").unwrap();
    let source = dir.join("archive");
    archive(&source, 1, 256 << 20);
    let _alone = MEASURING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut options = Options::default();
    options.volume.uuid = Some([1; 16]);
    let mut buf = vec![0; 1 << 20];
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let image = VirtualImage::plan(&[Source::Path(source)], &options, &Silent).unwrap();
    let mut data = 0;
    for at in (0..image.len()).step_by(buf.len()) {
        let len = usize::try_from(image.len() - at).unwrap_or(buf.len());
        let part = &mut buf[..len.min(1 << 20)];
        image.read_at(DevOff::new(at), part).unwrap();
        data += part.iter().filter(|&&byte| byte == b'x').count();
    }
    assert!(data >= 256 << 20, "{data}");
    let peak = MEMORY.peak_usage() - before;
    assert!(peak < 4 << 20, "{peak} bytes for 256 MiB of contents");
    let counters = image.counters();
    let metadata = counters
        .iter()
        .find(|(name, _)| *name == "virtual_metadata_bytes");
    let metadata = metadata.unwrap().1;
    assert!((1 << 14..1 << 20).contains(&metadata), "{metadata}");
}
