//! A mount whose image lies on a host that fails to write some of it back: Linux
//! reports it to the mount's process once, and every caller of the mount must get the error.

use extant_testkit::failing_host::{FailingHost, FullHost};
use extant_testkit::{Image, Need, Result, Subject, ensure, need};
use rustix::fs::OFlags;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Fuse,
    Need::Loop,
    Need::Tool("mke2fs"),
    Need::Tool("filefrag"),
];
const NAMES: [&str; 3] = ["A", "B", "C"];
const LEN: usize = 256 << 10;

/// Writes `byte` all over the file, past both caches of the mount.
fn overwrite(path: &Path, byte: u8) -> io::Result<File> {
    let direct = OFlags::DIRECT.bits().cast_signed();
    let file = File::options()
        .write(true)
        .custom_flags(direct)
        .open(path)?;
    let room = vec![byte; LEN + 4096];
    let at = room.as_ptr().align_offset(4096);
    file.write_all_at(&room[at..at + LEN], 0)?;
    Ok(file)
}

/// The first caller gets the error, whichever file it concerns; nothing is durable from then on.
#[test]
fn every_caller_learns_of_writes_that_the_host_lost() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(16)
        .args("-b 4096 -J size=4 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0")
        .make()?;
    let mount = Subject::Extant.mount(image.path(), "")?;
    for name in NAMES {
        fs::write(mount.join(name), vec![1; LEN])?;
    }
    mount.unmount()?;
    let base = fs::read(image.path())?;
    for seed in 0..2 {
        let mut host = FullHost::new(&base)?;
        let mount = Subject::Extant.mount(host.file(), "")?;
        for name in NAMES {
            ensure!(fs::read(mount.join(name))? == vec![1; LEN], "{name}");
        }
        host.fail(seed)?;
        let files: Vec<File> = NAMES
            .iter()
            .map(|name| overwrite(&mount.join(name), 2))
            .collect::<io::Result<_>>()?;
        let first = if seed == 0 { [1, 0, 2] } else { [2, 1, 0] };
        let mut answers = Vec::new();
        for nth in first.into_iter().chain(first) {
            answers.push(files[nth].sync_data().is_ok());
            answers.push(files[nth].sync_all().is_ok());
        }
        let new = File::create(mount.join("new")).and_then(|file| file.sync_all());
        answers.push(new.is_ok());
        ensure!(!answers.contains(&true), "seed {seed}: {answers:?}");
        drop(files);
        ensure!(mount.unmount().is_err(), "the unmount said nothing");
        let left = Image::of_bytes(&Box::new(host).end()?)?;
        // Nothing was promised; the volume is whole, and serves again.
        let again = Subject::Extant.mount(left.path(), "")?;
        fs::write(again.join("C"), vec![3; LEN])?;
        again.unmount()?;
        let again = Subject::Extant.mount(left.path(), "")?;
        ensure!(fs::read(again.join("C"))? == vec![3; LEN], "C");
        again.unmount()?;
    }
    Ok(())
}
