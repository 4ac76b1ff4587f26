//! Every format in the slice: block sizes, inode sizes and feature sets. Each image is filled
//! through the mount, found clean by e2fsck, shown equal by Linux, and filled further by Linux.

use extant_testkit::odd::{self, Limits};
use extant_testkit::storm::Storm;
use extant_testkit::tree::Compare;
use extant_testkit::{Context, Error, Image, Need, Result, Subject, Tree, ensure, need, report};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Fuse,
    Need::Loop,
    Need::Tool("mke2fs"),
    Need::Tool("setfacl"),
];

const BLOCKS: &[usize] = &[1024, 2048, 4096, 8192, 16384, 32768, 65536];
const INODES: &[usize] = &[128, 256, 512];
/// Feature sets, as mke2fs takes them.
const FEATURES: &[&str] = &[
    "",
    "-O ^metadata_csum",
    "-O ^64bit",
    "-O ^metadata_csum,^64bit",
    "-O ^has_journal",
    "-O ^has_journal,^metadata_csum",
    "-O ^metadata_csum,uninit_bg",
    "-O ^flex_bg,^resize_inode,^orphan_file",
    "-O ^huge_file,^dir_nlink,^large_file",
    "-O ^dir_index",
    "-O ^sparse_super,^resize_inode",
    "-O sparse_super2",
    "-O metadata_csum_seed",
    "-g 2048",
    "-E hash_seed=11111111-2222-3333-4444-555555555555",
    "-J size=4",
    "-O ^extent,^64bit",
    "-O ^extent,^64bit,^metadata_csum,^has_journal",
    "-g 256 -O meta_bg,^resize_inode",
    "-g 512 -O meta_bg,^resize_inode,^64bit,^flex_bg,^sparse_super,^metadata_csum",
    "-g 256 -O meta_bg,^resize_inode,sparse_super2",
];

#[test]
fn every_format_is_written_cleanly() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let mut cases = Vec::new();
    // Not every pair adds something: all pairs for the default, two of a diagonal and one of
    // larger blocks for the others, in turns.
    let diagonal = [(1024, 256), (2048, 128), (4096, 256)];
    let larger = [(8192, 128), (16384, 512), (32768, 256), (65536, 256)];
    for (turn, features) in FEATURES.iter().enumerate() {
        for block in BLOCKS {
            for inode in INODES {
                let place = diagonal.iter().position(|pair| *pair == (*block, *inode));
                let has_turn = place.is_some_and(|place| place != turn % diagonal.len())
                    // Their journals have a size of their own.
                    || (larger[turn % larger.len()] == (*block, *inode)
                        && !features.contains("-J"));
                if features.is_empty() || has_turn {
                    cases.push((*block, *inode, format!("-I {inode} {features}")));
                }
            }
        }
    }
    in_parallel(&cases, |(block, inode, args)| {
        one(*block, *inode, args).context(|| format!("-b {block} {args}"))
    })?;
    report(&format!(
        "{} formats written, clean, equal through Linux",
        cases.len()
    ));
    Ok(())
}

/// The hash of a directory's names: all versions, signed and unsigned.
#[test]
fn every_directory_hash_is_the_same_as_linux_has() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let mut cases = Vec::new();
    for version in ["legacy", "half_md4", "tea"] {
        // s_flags: 1 signed characters, 2 unsigned.
        for flags in [1, 2] {
            cases.push((version, flags));
        }
    }
    in_parallel(&cases, |(version, flags)| {
        hash(version, *flags).context(|| format!("{version}, flags {flags}"))
    })
}

fn hash(version: &str, flags: u32) -> Result<()> {
    let image = Image::of_mib(32).args("-b 1024").make()?;
    image.debugfs_write(&format!("set_super_value def_hash_version {version}"))?;
    image.debugfs_write(&format!("set_super_value flags {flags}"))?;
    image.fsck_clean()?;
    let linux = Subject::Ext4.mount(image.path(), "")?;
    odd::make(&linux.join("linux"), Limits::ext4(1024, 256), 1500)?;
    linux.unmount()?;
    let mount = Subject::under_test().mount(image.path(), "")?;
    odd::make(&mount.join("here"), Limits::ext4(1024, 256), 1500)?;
    // Looked up by name in a tree that the other has hashed.
    let linux_made = Tree::take(&mount.join("linux"))?;
    ensure!(
        linux_made.len() > 1500,
        "only {} entries found",
        linux_made.len()
    );
    let all = Tree::take(mount.dir())?;
    mount.unmount()?;
    image.fsck_clean()?;
    let linux = Subject::Ext4.mount(image.path(), "ro")?;
    all.expect_equal(&Tree::take(linux.dir())?, Compare::default())
}

fn one(block: usize, inode: usize, args: &str) -> Result<()> {
    // Room for the files of the tree and of the storm, of a block each at least.
    let mib = 36.max((2000 * block as u64) >> 20);
    let maker = Image::with_args(4 + mib, &format!("-b {block} {args}"));
    let image = maker.args("-N 4096").junk().make()?;
    let other = Subject::other(block as u64);
    let mut limits = Limits::ext4(block, inode);
    if args.contains("large_file") {
        limits = limits.with_large_file();
    }
    let mount = Subject::under_test().mount(image.path(), "")?;
    odd::make(&mount.join("odd"), limits, 400)?;
    let storm = Storm::default();
    std::thread::scope(|s| {
        let raging = s.spawn(|| storm.rage(mount.dir(), 2, 99));
        std::thread::sleep(Duration::from_millis(150));
        storm.stop.store(true, Ordering::SeqCst);
        raging.join().map_err(|_| Error::new("storm panicked"))?
    })?;
    let here = Tree::take(mount.dir())?;
    mount.unmount()?;
    image.fsck_clean()?;

    let linux = other.mount(image.path(), "")?;
    let how = Compare {
        as_fuse2fs_shows: other == Subject::Fuse2fs,
        ..Compare::default()
    };
    here.expect_equal(&Tree::take(linux.dir())?, how)?;
    std::fs::remove_dir_all(linux.join("odd/crowd"))?;
    odd::make(&linux.join("more"), limits, 100)?;
    linux.unmount()?;

    let mount = Subject::under_test().mount(image.path(), "")?;
    storm.ledger.check(mount.dir())?;
    std::fs::remove_dir_all(mount.join("odd"))?;
    std::fs::remove_dir_all(mount.join("more"))?;
    mount.unmount()?;
    image.fsck_clean().context(|| "at the end")
}

/// Files without extents, as ext2 and ext3 made them, are left as they are by a mount that reads
/// them.
#[test]
fn block_mapped_files_are_read() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for args in [
        "-b 1024 -O ^extent,^64bit,^metadata_csum",
        "-b 4096 -O ^extent,^64bit",
    ] {
        let image = Image::of_mib(64).args(args).make()?;
        let linux = Subject::Ext4.mount(image.path(), "")?;
        odd::make(&linux.join("odd"), Limits::ext4(1024, 256), 300)?;
        // Deep enough for double and triple indirection at 1 KiB.
        let f = std::fs::File::create(linux.join("deep"))?;
        for pos in [0u64, 12 << 10, 300 << 10, 70 << 20, 200 << 20] {
            std::os::unix::fs::FileExt::write_all_at(&f, b"here", pos)?;
        }
        drop(f);
        linux.unmount()?;
        let linux = Subject::Ext4.mount(image.path(), "ro")?;
        let want = Tree::take(linux.dir())?;
        linux.unmount()?;
        let mount = Subject::under_test()
            .mount(image.path(), "ro")
            .context(|| args)?;
        want.expect_equal(
            &Tree::take(mount.dir())?,
            Compare {
                one_image: true,
                ..Compare::default()
            },
        )
        .context(|| args)?;
        mount.unmount()?;
        image.fsck_clean().context(|| args)?;
    }
    Ok(())
}

fn in_parallel<T: Sync>(cases: &[T], run: impl Fn(&T) -> Result<()> + Sync) -> Result<()> {
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(e) = run(case) {
                        failures.lock().unwrap().push(e.to_string());
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    let shown = failures
        .iter()
        .take(5)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join("\n");
    ensure!(
        failures.is_empty(),
        "{} of {} failed:\n{shown}",
        failures.len(),
        cases.len()
    );
    Ok(())
}
