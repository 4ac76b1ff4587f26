//! A folder with entries of every kind, and ways to look at what was built of it.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(dead_code, reason = "no suite uses all of it")]

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

use extant_build::{Options, Silent, Source};
use extant_testkit::tree::Compare;
use extant_testkit::{Cmd, Image, Subject, Tree, content};

/// Fills `dir`, which is not there yet, with entries of every kind.
pub(crate) fn fill(dir: &Path) {
    fs::create_dir(dir).unwrap();
    let at = |name: &str| dir.join(name);
    fs::write(at("empty"), b"").unwrap();
    fs::write(at("small"), b"hello\n").unwrap();
    fs::write(at("large"), content::fill(1, 0, 3_000_001)).unwrap();
    fs::hard_link(at("large"), at("large again")).unwrap();
    symlink("small", at("short link")).unwrap();
    symlink("x".repeat(59), at("link of 59")).unwrap();
    symlink("x".repeat(60), at("link of 60")).unwrap();
    symlink("y/".repeat(500), at("long link")).unwrap();
    fs::write(at(&"n".repeat(255)), b"the longest name").unwrap();
    // Every volume has one: with it, the root has as many links.
    fs::create_dir(at("lost+found")).unwrap();
    fs::create_dir_all(at("a/b/c/d")).unwrap();
    fs::write(at("a/b/c/d/deep"), b"deep").unwrap();
    fs::create_dir(at("many")).unwrap();
    for number in 0..3000 {
        let name = format!("many/a file with a name, number {number}");
        fs::write(at(&name), format!("{number}")).unwrap();
    }
    let sparse = fs::File::create(at("sparse")).unwrap();
    for (pos, len) in [(0, 10), (1 << 20, 5000), (5 << 20, 1), (9 << 20, 100_000)] {
        sparse
            .write_all_at(&content::fill(2, pos, len), pos)
            .unwrap();
    }
    sparse.set_len(12 << 20).unwrap();
    let script = "set -e
        mkfifo fifo; mknod null c 1 3; mknod disk b 259 70000; mknod big c 300 5
        chown 1234:70000 small; chmod 4755 large; chmod 1777 a
        setfattr -n user.short -v value small
        setfattr -n user.long -v $(printf %300s | tr ' ' v) small a/b
        for number in $(seq 9); do
            setfattr -n user.$(printf %061d $number) -v x a/b/c/d/deep
        done
        setfattr -n trusted.both -v $(printf %700s | tr ' ' v) large
        setfacl -m u:55:rwx,g:66:r small; setfacl -d -m u:55:rx a
        touch -h -d '1969-12-31 23:59:58.75 UTC' 'short link'
        touch -d '2040-06-01 01:02:03.000000004 UTC' empty";
    Cmd::new("sh").args(["-c", script]).dir(dir).ok().unwrap();
}

/// Builds `image` of paths.
pub(crate) fn build(paths: &[&Path], image: &Path, options: &Options) -> extant_build::Result<()> {
    let sources = paths.iter().map(|path| Source::Path(path.to_path_buf()));
    let sources: Vec<Source> = sources.collect();
    let options = Options {
        trusted: true,
        ..options.clone()
    };
    extant_build::build(&sources, image, &options, &Silent).map(drop)
}

/// Bytes of a block, by the image's superblock.
fn block_size(image: &Path) -> u64 {
    let mut log = [0; 4];
    let file = fs::File::open(image).unwrap();
    file.read_exact_at(&mut log, 1024 + 0x18).unwrap();
    1024 << u32::from_le_bytes(log)
}

/// Checks that `image` is sound, and that Linux finds in it what is in `dir`.
pub(crate) fn expect_equal(image: &Path, dir: &Path) {
    Image::fsck_clean_at(image).unwrap();
    let other = Subject::other(block_size(image));
    let mount = other.mount(image, "ro").unwrap();
    let found = Tree::take(mount.dir()).unwrap().without("lost+found");
    let right = Tree::take(dir).unwrap().without("lost+found");
    let how = Compare {
        as_fuse2fs_shows: other == Subject::Fuse2fs,
        ..Compare::default()
    };
    right.expect_equal(&found, how).unwrap();
}
