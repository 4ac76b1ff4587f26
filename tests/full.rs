//! A mount that eight writers fill to the last block: what a successful fsync covered is there,
//! errors came where they belong, what is deleted can be used again, and e2fsck and Linux agree
//! about the rest.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use extant_testkit::{
    Error, Image, Need, Result, Rng, Subject, Tree, content, ensure, need, tree::Compare,
};

const NEEDS: &[Need] = &[Need::Root, Need::Fuse, Need::Loop, Need::Tool("mke2fs")];

/// Bytes that a writer got.
struct Written {
    name: String,
    seed: u64,
    /// Bytes that `write` took.
    taken: u64,
    /// Of those, what a successful fsync covers.
    synced: u64,
}

/// Appends until neither a write nor an fsync finds space any more.
fn fill(dir: &Path, number: u64, seed: u64) -> Result<Written> {
    let name = format!("f{number}");
    let mut rng = Rng::new(seed);
    let mut file = File::create(dir.join(&name))?;
    let (mut taken, mut synced, mut refused) = (0, 0, 0);
    while refused < 5 {
        let most = [2000, 60_000, 900_000][rng.index(3)];
        let len = usize::try_from(1 + rng.below(most)).unwrap_or(1);
        let data = content::fill(seed, taken, len);
        match file.write(&data) {
            Ok(done) => taken += done as u64,
            Err(error) if error.kind() == ErrorKind::StorageFull => refused += 1,
            Err(error) => return Err(error.into()),
        }
        if rng.chance(20) || refused > 0 {
            match file.sync_all() {
                Ok(()) => synced = taken,
                Err(error) if error.kind() == ErrorKind::StorageFull => {
                    // What the kernel's cache held and could not place is lost; it was never
                    // promised.
                    refused = 5;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(Written {
        name,
        seed,
        taken,
        synced,
    })
}

fn judge(dir: &Path, written: &[Written]) -> Result<()> {
    for w in written {
        let found = fs::read(dir.join(&w.name))?;
        let synced = usize::try_from(w.synced)?;
        ensure!(
            found.len() >= synced && found.len() as u64 <= w.taken,
            "{}: {} bytes, {} synced, {} taken",
            w.name,
            found.len(),
            w.synced,
            w.taken
        );
        let wrong = content::first_wrong(w.seed, 0, &found[..synced]);
        ensure!(wrong.is_none(), "{} is wrong at {wrong:?}", w.name);
        let foreign = content::first_foreign(w.seed, 0, &found);
        ensure!(foreign.is_none(), "{} is foreign at {foreign:?}", w.name);
    }
    Ok(())
}

fn fill_a_mount(options: &str) -> Result<()> {
    let image = Image::of_mib(64).junk().make()?;
    let mount = Subject::under_test().mount(image.path(), options)?;
    let dir = mount.dir();
    let done: Vec<Result<Written>> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..8)
            .map(|number| scope.spawn(move || fill(dir, number, 1000 + number)))
            .collect();
        writers
            .into_iter()
            .map(|w| {
                w.join()
                    .unwrap_or_else(|_| Err(Error::new("a thread panicked")))
            })
            .collect()
    });
    let written = done.into_iter().collect::<Result<Vec<_>>>()?;
    let total: u64 = written.iter().map(|w| w.synced).sum();
    ensure!(total > 35 << 20, "{total} bytes synced");
    // Overwriting needs no space.
    let first = written.first().ok_or_else(|| Error::new("no writer"))?;
    ensure!(first.synced > 0, "the first writer got nothing");
    let again = OpenOptions::new().write(true).open(dir.join(&first.name))?;
    again.write_all_at(&content::fill(first.seed, 0, 1), 0)?;
    again.sync_all()?;
    drop(again);
    judge(dir, &written)?;
    mount.unmount()?;
    image.fsck_clean()?;

    let linux = Subject::Ext4.mount(image.path(), "ro")?;
    judge(linux.dir(), &written)?;
    let by_linux = Tree::take(linux.dir())?;
    linux.unmount()?;
    let mount = Subject::under_test().mount(image.path(), options)?;
    judge(mount.dir(), &written)?;
    Tree::take(mount.dir())?.expect_equal(&by_linux, Compare::default())?;
    // What is deleted can be written again.
    for w in &written {
        fs::remove_file(mount.join(&w.name))?;
    }
    let mut again = File::create(mount.join("again"))?;
    let data = content::fill(7, 0, usize::try_from(total / 2)?);
    again.write_all(&data)?;
    again.sync_all()?;
    ensure!(fs::read(mount.join("again"))? == data, "written again");
    drop(again);
    mount.unmount()?;
    image.fsck_clean()
}

#[test]
fn a_full_mount_keeps_what_was_synced() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    fill_a_mount("")
}

#[test]
fn a_full_mount_without_the_kernels_write_cache_keeps_what_was_synced() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    fill_a_mount("nowriteback_cache")
}
