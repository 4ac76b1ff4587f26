//! The same bytes as mke2fs 1.47 writes, on the same arguments.
//!
//! The differences that are meant are listed in [`difference`], with the reason. As everything else
//! is the same, so is every field that dumpe2fs shows.
#![allow(clippy::unwrap_used, reason = "tests")]

mod case;
mod difference;
mod journals;

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use extant_disk::features::{Incompat, RoCompat};
use extant_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use extant_testkit::{
    Context, Image, Need, Result, Rng, Subject, TempDir, content, ensure, need, report,
};

use case::Case;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// Makes the volume of `case` twice and compares; returns whether mke2fs made one at all.
fn compare(dir: &TempDir, case: &Case) -> Result<bool> {
    let (ours, theirs) = (dir.join("ours.img"), dir.join("theirs.img"));
    for path in [&ours, &theirs] {
        let _ = std::fs::remove_file(path);
    }
    let refused = case.by_mke2fs(&theirs)?;
    let made = case.by_extant(&ours);
    if let Some(said) = refused {
        if said_of_few_inodes(&said) && made.is_ok() {
            Image::fsck_clean_at(&ours)?;
            return Ok(false);
        }
        // Where mke2fs makes nothing, nothing is to be made, and no file to be left.
        ensure!(made.is_err(), "{case}: made, but mke2fs said: {said}");
        ensure!(!ours.exists(), "{case}: a file was left behind");
        return Ok(false);
    }
    made.map_err(|error| extant_testkit::Error::new(format!("{case}: {error}")))?;
    let found = difference::find(&ours, &theirs)?;
    if !found.is_empty() && is_refused_elsewhere(&theirs)? {
        Image::fsck_clean_at(&ours).context(|| format!("{case}"))?;
        return Ok(false);
    }
    ensure!(
        found.is_empty(),
        "{case}: differs from mke2fs:\n{}",
        found.join("\n")
    );
    Ok(true)
}

/// Returns whether mke2fs made a volume that others refuse: one that has most of its blocks
/// reserved after some were left out for whole clusters, or an orphan file of more than 512 blocks
/// because a cluster has more.
fn is_refused_elsewhere(path: &Path) -> Result<bool> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    File::open(path)?.read_exact_at(&mut bytes, SUPERBLOCK_OFFSET)?;
    let sb = Superblock::parse(&bytes)?;
    let has_large = sb.orphan_file_inode().is_some() && sb.cluster_bits() > 9;
    Ok(has_large || Image::fsck_clean_at(path).is_err())
}

/// Returns whether mke2fs rounded the number of inodes down until the format's own had no room.
fn said_of_few_inodes(said: &str) -> bool {
    said.contains("Illegal inode number while writing reserved inodes")
        || said.contains("Could not allocate inode in ext2 filesystem")
}

fn compare_all(cases: &[(u64, &str)]) {
    if !need(&[Need::Tool("mke2fs")]) {
        return;
    }
    let dir = TempDir::new("mkfs").unwrap();
    for &(size, args) in cases {
        let made = compare(&dir, &Case::new(size, args)).unwrap();
        assert!(made, "{size} {args}: mke2fs refused");
    }
}

#[test]
fn the_defaults_of_every_size() {
    compare_all(&[
        (MIB, ""),
        (MIB + 512 * KIB, ""),
        (2 * MIB, ""),
        (3 * MIB - 4 * KIB, ""),
        (3 * MIB, ""),
        (5 * MIB, ""),
        (8 * MIB, ""),
        // A last group that is a little too small, and one that is not.
        (16776 * KIB, ""),
        (17 * MIB, ""),
        (32 * MIB, ""),
        (100 * MIB, ""),
        (512 * MIB - 4 * KIB, ""),
        (512 * MIB, ""),
        (GIB, ""),
        (2 * GIB, ""),
        (5 * GIB + 123 * MIB, ""),
        (16 * GIB, ""),
        (40 * GIB, ""),
        (128 * GIB, ""),
        (130 * GIB + 4 * KIB, ""),
        (TIB, ""),
        (4 * TIB, ""),
        (8 * TIB, ""),
    ]);
}

#[test]
fn each_feature_with_and_without() {
    compare_all(&[
        (64 * MIB, "-O orphan_file"),
        (700 * MIB, "-O orphan_file"),
        (9 * GIB, "-O orphan_file"),
        (64 * MIB, "-O mmp"),
        (64 * MIB, "-O metadata_csum_seed"),
        (64 * MIB, "-O stable_inodes"),
        (
            64 * MIB,
            "-O stable_inodes,^has_journal,^metadata_csum -b 4096",
        ),
        (64 * MIB, "-O casefold"),
        (64 * MIB, "-O encrypt"),
        (64 * MIB, "-O encrypt,casefold,inline_data -b 4096 -I 512"),
        (64 * MIB, "-O encrypt,stable_inodes -b 1024"),
        (64 * MIB, "-O encrypt,^ext_attr -I 128"),
        (64 * MIB, "-O encrypt,^extent,^64bit"),
        (64 * MIB, "-O stable_inodes"),
        (64 * MIB, "-O large_dir"),
        (64 * MIB, "-O inline_data"),
        (64 * MIB, "-O inline_data -b 4096 -I 1024"),
        (64 * MIB, "-O ea_inode"),
        (64 * MIB, "-E encoding=utf8,encoding_flags=strict -b 4096"),
        (64 * MIB, "-O ^metadata_csum"),
        (64 * MIB, "-O ^metadata_csum,uninit_bg"),
        (64 * MIB, "-O ^64bit"),
        (64 * MIB, "-O ^resize_inode"),
        (64 * MIB, "-O ^flex_bg"),
        (GIB, "-O ^flex_bg"),
        (GIB, "-O ^flex_bg -E stride=16,stripe_width=64"),
        (GIB, "-E stride=16,stripe_width=64"),
        (64 * MIB, "-O ^has_journal"),
        (64 * MIB, "-O sparse_super2"),
        (16 * MIB, "-O sparse_super2"),
        (6 * MIB, "-O sparse_super2"),
        (64 * MIB, "-O ^resize_inode,^sparse_super"),
        (64 * MIB, "-O meta_bg,^resize_inode"),
        (GIB, "-O meta_bg,^resize_inode -b 1024"),
        (GIB, "-O meta_bg,^resize_inode,^flex_bg,^64bit -b 1024"),
        (9 * GIB, "-O meta_bg,^resize_inode,sparse_super2"),
        (
            2 * GIB,
            "-O meta_bg,^resize_inode,^sparse_super,^metadata_csum -b 2048",
        ),
        // A last group, of 63 and of 67 blocks, that begins with a superblock.
        (
            401_472 * KIB,
            "-b 1024 -O meta_bg,^resize_inode,^has_journal -N 1600",
        ),
        (
            401_476 * KIB,
            "-b 1024 -O meta_bg,^resize_inode,^has_journal -N 1600",
        ),
        // A table of descriptors would fill the groups.
        (800 * GIB, "-O ^has_journal -b 1024 -N 100000"),
        (64 * MIB, "-O ^extent,^64bit"),
        (2 * GIB, "-O ^extent,^64bit -b 1024 -J size=300"),
        (64 * MIB, "-O ^filetype"),
        (
            64 * MIB,
            "-O ^huge_file,^dir_nlink,^extra_isize,^large_file",
        ),
        (64 * MIB, "-O ^ext_attr,^dir_index"),
        (64 * MIB, "-O none"),
        (64 * MIB, "-O none,has_journal"),
        (64 * MIB, "-O none,extent"),
    ]);
}

#[test]
fn quotas_of_every_kind() {
    compare_all(&[
        (64 * MIB, "-O quota"),
        (64 * MIB, "-O verity"),
        (64 * MIB, "-O verity,inline_data -b 4096"),
        (64 * MIB, "-O quota,project"),
        (64 * MIB, "-O project"),
        (64 * MIB, "-O quota,project,orphan_file"),
        (64 * MIB, "-O quota -E quotatype=usrquota"),
        (64 * MIB, "-O quota -E quotatype=grpquota:^usr"),
        (64 * MIB, "-O quota -E quotatype=prjquota"),
        (64 * MIB, "-O quota,project -E quotatype=usr"),
        (64 * MIB, "-E quotatype=usrquota:grpquota:prjquota"),
        (64 * MIB, "-O quota,project -b 2048"),
        (64 * MIB, "-O quota,project -b 4096"),
        (64 * MIB, "-O quota,project -b 8192"),
        (64 * MIB, "-O quota,project -b 16384"),
        (128 * MIB, "-O quota,project -b 32768"),
        (200 * MIB, "-O quota,project -b 65536"),
        (64 * MIB, "-O quota,project,^extent,^64bit"),
        (64 * MIB, "-O quota,project,^extent,^64bit,^flex_bg -b 4096"),
        (GIB, "-O quota,project,^metadata_csum,^64bit -b 1024"),
        (64 * MIB, "-O quota,project,^has_journal,^resize_inode"),
        (64 * MIB, "-O quota,project,mmp -I 512"),
        (64 * MIB, "-O quota -I 128"),
        (9 * GIB, "-O quota,project,orphan_file"),
        (2 * MIB, "-O quota,project"),
        (64 * MIB, "-O quota,project,inline_data,ea_inode"),
        (64 * MIB, "-O quota,project -E root_owner=1000:100000"),
        (64 * MIB, "-O quota,project -b 4096 -E root_owner=5:0"),
        (
            64 * MIB,
            "-O quota,^extent,^64bit -E root_owner=4294967294:70000",
        ),
    ]);
}

#[test]
fn clusters_of_many_sizes() {
    compare_all(&[
        (64 * MIB, "-O bigalloc"),
        (64 * MIB, "-O bigalloc -C 2048"),
        (64 * MIB, "-O bigalloc -b 1024 -C 4096"),
        (64 * MIB, "-O bigalloc -b 1024 -C 65536"),
        (64 * MIB, "-O bigalloc -b 2048 -C 2048"),
        (64 * MIB, "-O bigalloc -b 4096 -C 4096"),
        (64 * MIB, "-O bigalloc -b 4096 -C 8192"),
        (64 * MIB, "-O bigalloc -b 4096 -C 262144"),
        (200 * MIB, "-O bigalloc -b 4096 -C 1048576"),
        (GIB, "-O bigalloc -b 65536"),
        (64 * MIB + 12 * KIB, "-O bigalloc -b 4096"),
        (2 * MIB, "-O bigalloc"),
        (16776 * KIB, "-O bigalloc -b 1024 -C 2048"),
        (33 * MIB, "-O bigalloc -b 1024 -C 2048"),
        (GIB, "-O bigalloc"),
        (9 * GIB, "-O bigalloc"),
        (TIB, "-O bigalloc"),
        (4 * TIB, "-O bigalloc -b 1024 -C 16384 -N 100000"),
        (40 * GIB, "-O bigalloc -b 1024 -C 2048 -N 10000"),
        (40 * GIB, "-O bigalloc -C 134217728 -N 10000"),
        (40 * GIB, "-O bigalloc,^has_journal -b 1024 -C 536870912"),
        (2 * GIB, "-O bigalloc -b 1024 -C 33554432"),
    ]);
}

/// Volumes that mke2fs makes and others refuse.
#[test]
fn clusters_that_mke2fs_goes_wrong_with() {
    if !need(&[Need::Tool("mke2fs"), Need::Tool("e2fsck")]) {
        return;
    }
    let dir = TempDir::new("mkfs").unwrap();
    let large = Case::new(128 * MIB, "-O orphan_file,bigalloc -b 1024 -C 2097152");
    let reserved = Case::new(11 * MIB + 800 * KIB, "-O bigalloc -b 65536 -m 49");
    for case in [large, reserved] {
        let made = compare(&dir, &case).unwrap();
        assert!(!made, "{case}: as mke2fs made it");
        let ours = dir.join("ours.img");
        if case.block_size() <= 4096 && need(&[Need::Loop]) {
            let theirs = dir.join("theirs.img");
            assert!(Subject::Ext4.mount(&theirs, "").is_err(), "{case}");
            let linux = Subject::Ext4.mount(&ours, "").unwrap();
            std::fs::write(linux.join("file"), [1; 5000]).unwrap();
            linux.unmount().unwrap();
        }
        Image::fsck_clean_at(&ours).unwrap();
        let report = extant::check_image(&ours, &extant::CheckOptions::default()).unwrap();
        assert!(report.is_clean(), "{case}: {:?}", report.findings);
    }
}

#[test]
fn clusters_with_each_feature() {
    compare_all(&[
        (64 * MIB, "-O bigalloc,^flex_bg"),
        (GIB, "-O bigalloc,^flex_bg -b 1024 -C 2048"),
        (GIB, "-O bigalloc,^flex_bg -b 1024 -C 2048 -E stride=16"),
        (9 * GIB, "-O bigalloc,^flex_bg,^64bit -b 1024 -C 16384"),
        (9 * GIB, "-O bigalloc,^64bit -b 1024 -C 16384"),
        (64 * MIB, "-O bigalloc,^resize_inode"),
        (GIB, "-O bigalloc,^resize_inode,^sparse_super -b 1024"),
        (GIB, "-O bigalloc,^resize_inode,meta_bg -b 1024 -C 2048"),
        (
            9 * GIB,
            "-O bigalloc,^resize_inode,meta_bg,^flex_bg -b 1024 -C 4096",
        ),
        (GIB, "-O bigalloc,sparse_super2 -b 1024 -C 2048"),
        (64 * MIB, "-O bigalloc,^has_journal"),
        (9 * GIB, "-O bigalloc -J size=1024"),
        (3 * GIB, "-O bigalloc,^flex_bg -b 1024 -C 2048 -J size=300"),
        (64 * MIB, "-O bigalloc,^metadata_csum"),
        (GIB, "-O bigalloc,^metadata_csum,uninit_bg -b 1024 -C 2048"),
        (64 * MIB, "-O bigalloc,quota"),
        (
            64 * MIB,
            "-O bigalloc,quota,project,orphan_file -b 1024 -C 2048",
        ),
        (
            64 * MIB,
            "-O bigalloc,quota,project,orphan_file -b 1024 -C 4096",
        ),
        (64 * MIB, "-O bigalloc,quota,project -b 1024 -C 8192"),
        (64 * MIB, "-O bigalloc,quota,project -b 2048"),
        (64 * MIB, "-O bigalloc,quota,project -b 2048 -C 4096"),
        (
            64 * MIB,
            "-O bigalloc,quota,project -b 4096 -E root_owner=5:70000",
        ),
        (9 * GIB, "-O bigalloc,quota,project,orphan_file,mmp"),
        (
            64 * MIB,
            "-O bigalloc,mmp,inline_data,ea_inode,casefold,large_dir",
        ),
        (64 * MIB, "-O bigalloc,inline_data -b 4096 -I 1024"),
        (64 * MIB, "-O bigalloc -I 128 -i 20000"),
        (64 * MIB, "-O bigalloc -m 12.5 -E lazy_itable_init=0"),
    ]);
}

#[test]
fn each_size_that_can_be_chosen() {
    compare_all(&[
        (64 * MIB, "-b 4096"),
        (64 * MIB, "-b 8192"),
        (600 * MIB, "-b 8192 -O orphan_file"),
        (64 * MIB, "-b 16384 -I 8192"),
        (2 * GIB, "-b 16384 -N 65536"),
        (128 * MIB, "-b 32768"),
        (9 * GIB, "-b 32768"),
        (32 * MIB, "-b 65536"),
        (200 * MIB, "-b 65536"),
        (9 * GIB, "-b 65536 -O orphan_file"),
        (64 * GIB, "-b 65536 -J size=100 -I 32768"),
        (TIB, "-b 65536"),
        (64 * MIB, "-b 2048"),
        (GIB, "-b 1024"),
        (64 * MIB, "-I 128"),
        (64 * MIB, "-I 512"),
        (64 * MIB, "-I 1024"),
        (600 * MIB, "-I 4096"),
        (64 * MIB, "-N 1000"),
        (64 * MIB, "-N 16"),
        (600 * MIB, "-N 100000 -b 1024"),
        (64 * MIB, "-i 65536"),
        (64 * MIB, "-i 1024"),
        (64 * MIB, "-m 1.5"),
        (64 * MIB, "-m 0"),
        (64 * MIB, "-m 50"),
        (64 * MIB, "-J size=8"),
        (600 * MIB, "-J size=4"),
        (4 * GIB, "-J size=1024"),
        (64 * MIB, "-O fast_commit"),
        (64 * MIB, "-O fast_commit -b 1024"),
        (4 * MIB, "-O fast_commit"),
        (GIB, "-O fast_commit,orphan_file -b 1024"),
        (40 * GIB, "-O fast_commit"),
        (600 * MIB, "-O fast_commit -J size=32"),
        (600 * MIB, "-O fast_commit -J size=32,fast_commit_size=256"),
        (64 * MIB, "-O fast_commit -b 1024 -J fast_commit_size=4096"),
        (
            600 * MIB,
            "-O fast_commit -b 65536 -J size=128,fast_commit_size=100",
        ),
        (64 * MIB, "-L sixteen-letters."),
        (64 * MIB, "-E lazy_itable_init=0"),
        (64 * MIB, "-E root_owner=1000:100000"),
    ]);
}

/// Features of random volumes.
const FEATURES: &[&str] = &[
    "bigalloc",
    "bigalloc",
    "orphan_file",
    "fast_commit",
    "casefold",
    "encrypt",
    "stable_inodes",
    "large_dir",
    "inline_data",
    "ea_inode",
    "quota",
    "project",
    "mmp",
    "metadata_csum_seed",
    "^metadata_csum",
    "uninit_bg",
    "^64bit",
    "^resize_inode",
    "meta_bg",
    "^flex_bg",
    "^has_journal",
    "sparse_super2",
    "^sparse_super",
    "^extent",
    "^filetype",
    "^huge_file",
    "^dir_nlink",
    "^extra_isize",
    "^large_file",
    "^ext_attr",
    "^dir_index",
];

/// A list of features, sizes and the like that mke2fs may also refuse.
fn random_case(rng: &mut Rng) -> Case {
    let mut features: Vec<&str> = Vec::new();
    for _ in 0..rng.below(6) {
        features.push(FEATURES[rng.index(FEATURES.len())]);
    }
    if features.contains(&"meta_bg") && rng.chance(90) {
        features.push("^resize_inode");
    }
    let mut args = String::new();
    if !features.is_empty() {
        args = format!("-O {}", features.join(","));
    }
    let block_size = 1024 << rng.below(7);
    let named = rng.chance(60);
    if named {
        args += &format!(" -b {block_size}");
    }
    if features.contains(&"bigalloc") && rng.chance(70) {
        args += &format!(" -C {}", 2048 << rng.below(11));
    }
    // Without group checksums every bitmap is written; with small blocks there are many groups;
    // without sparse_super each of them has all descriptors.
    let plain = features.contains(&"^metadata_csum") && !features.contains(&"uninit_bg");
    let dense = features.contains(&"^sparse_super") && !features.contains(&"sparse_super2");
    let most = if dense {
        20
    } else if plain || (named && block_size < 4096) {
        24
    } else {
        33
    };
    let kib = 1 << rng.between(10, most);
    let size = (kib + rng.below(kib)).min(8 * GIB) / 4 * 4 * KIB;
    if rng.chance(30) {
        args += &format!(" -I {}", 128 << rng.below(9));
    }
    match rng.below(6) {
        0 => args += &format!(" -i {}", 1024 << rng.below(12)),
        1 => args += &format!(" -N {}", 1 << rng.below(17)),
        _ => {}
    }
    if rng.chance(20) {
        args += &format!(" -m {}", rng.below(501) as f64 / 10.0);
    }
    if rng.chance(20) && !features.contains(&"^has_journal") {
        args += &format!(" -J size={}", rng.between(1, 80));
    }
    match rng.below(10) {
        0 => args += &format!(" -E stride={}", rng.between(1, 64)),
        1 => args += " -E lazy_itable_init=0",
        _ => {}
    }
    Case::new(size, args.trim())
}

/// Has others look at the volume and write to it, as far as its size lets them do so soon.
fn judge(path: &Path, case: &Case, number: u64) -> Result<()> {
    let said = |what: &str| format!("{case}: {what}");
    if case.size <= 16 * GIB {
        Image::fsck_clean_at(path).context(|| said("new"))?;
    }
    if case.size > 2 * GIB {
        return Ok(());
    }
    let report = extant::check_image(path, &extant::CheckOptions::default())?;
    ensure!(
        report.is_clean(),
        "{}",
        said(&format!("{:?}", report.findings))
    );
    if case.args.contains("encrypt") && !Incompat::SUPPORTED.contains(Incompat::ENCRYPT) {
        return Ok(());
    }
    if case.args.contains("bigalloc") && !RoCompat::SUPPORTED.contains(RoCompat::BIGALLOC) {
        return Ok(());
    }
    let data = content::fill(number, 0, 60_000);
    let fs = extant::Filesystem::options().write(true).open(path)?;
    fs.create_dir("/dir")?;
    fs.create("/dir/file")?.write_all(&data)?;
    fs.unmount()?;
    Image::fsck_clean_at(path).context(|| said("written by the engine"))?;
    // Linux mounts no blocks larger than a page before 6.19, and few kernels fold names or know
    // files of quotas.
    let folds = Path::new("/sys/fs/ext4/features/casefold").exists();
    let counts = ["quota", "project"]
        .iter()
        .any(|name| case.args.contains(name));
    let mounts = case.block_size() <= 4096 && !counts && (folds || !case.args.contains("casefold"));
    if number.is_multiple_of(5) && mounts && need(&[Need::Loop]) {
        let linux = Subject::Ext4
            .mount(path, "")
            .context(|| said("mounted by Linux"))?;
        ensure!(
            std::fs::read(linux.join("dir/file"))? == data,
            "{}",
            said("other bytes")
        );
        std::fs::write(linux.join("dir/other"), &data)?;
        linux.unmount()?;
        Image::fsck_clean_at(path).context(|| said("written by Linux"))?;
    }
    Ok(())
}

/// Random combinations; `EXTANT_CASES` and `EXTANT_SEED` say how many and which.
#[test]
fn random_combinations() {
    if !need(&[Need::Tool("mke2fs"), Need::Tool("e2fsck")]) {
        return;
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let (cases, seed) = (number("EXTANT_CASES"), number("EXTANT_SEED"));
    let (cases, seed) = (cases.unwrap_or(60), seed.unwrap_or(17));
    let mut rng = Rng::new(seed);
    let dir = TempDir::new("mkfs").unwrap();
    let mut made = 0;
    for _ in 0..cases {
        let case = random_case(&mut rng);
        if !compare(&dir, &case).unwrap() {
            continue;
        }
        made += 1;
        judge(&dir.join("ours.img"), &case, made).unwrap();
    }
    assert!(made * 2 > cases, "only {made} of {cases} were made");
    report(&format!(
        "{made} of {cases} random volumes as mke2fs made them"
    ));
}
