//! Faults met by a running mount: damage found late shuts it down read-only; a full image, an
//! over-long name and a read-only mount give their own errors and cost nothing.

use super::damage::{self, Damage};
use extant_testkit::{Context, Image, Need, Result, Subject, content, ensure, need};
use std::fs::{self, File};
use std::io;
use std::path::Path;

const NEEDS: &[Need] = &[Need::Root, Need::Fuse, Need::Loop, Need::Tool("mke2fs")];

/// EUCLEAN, by which ext4 says "corrupted".
const CORRUPTED: i32 = 117;
const READ_ONLY: i32 = 30;
const IO: i32 = 5;
const NO_SPACE: i32 = 28;
const NAME_TOO_LONG: i32 = 36;

fn errno<T>(r: io::Result<T>) -> i32 {
    r.err().and_then(|e| e.raw_os_error()).unwrap_or(0)
}

/// Reads or writes something below a mount; the errno it got.
type Touch = fn(&Path) -> i32;

/// Makes files until one fails; that errno, 0 if none did.
fn fill_directory(dir: &Path, prefix: &str) -> i32 {
    (0..3000)
        .map(|i| errno(fs::write(dir.join(format!("{prefix}{i}")), b"x")))
        .find(|e| *e != 0)
        .unwrap_or(0)
}

#[test]
fn damage_found_late_shuts_the_mount_down_read_only() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let touch: [(Damage, Touch); 5] = [
        (Damage::Inode, |m| errno(fs::read(m.join("file")))),
        (Damage::ExtentBlock, |m| errno(fs::read(m.join("comb")))),
        (Damage::DirectoryBlock, |m| {
            errno(fs::read_dir(m.join("dir")).and_then(|d| d.collect::<io::Result<Vec<_>>>()))
        }),
        // The bitmaps are read when something is allocated; data is allocated late, at fsync.
        (Damage::InodeBitmap, |m| fill_directory(m, "many")),
        (Damage::BlockBitmap, |m| {
            let wrote = File::create(m.join("big")).and_then(|f| {
                io::Write::write_all(&mut &f, &content::fill(1, 0, 3 << 20))?;
                f.sync_all()
            });
            errno(wrote)
        }),
    ];
    for (what, touch) in touch {
        let image = damage::with_files()?;
        what.inflict(&image)?;
        let run = || -> Result<()> {
            let mount = Subject::Extant.mount(image.path(), "")?;
            let got = touch(mount.dir());
            ensure!(matches!(got, CORRUPTED | IO), "errno {got}");
            let after = errno(fs::create_dir(mount.join("after")));
            ensure!(
                matches!(after, READ_ONLY | IO),
                "a write after it: errno {after}"
            );
            // What is not damaged can still be read.
            let other = fs::read(mount.join("other"))?;
            ensure!(other == b"untouched", "/other reads {other:?}");
            // The daemon ends in order, if not with success.
            let _ = mount.unmount();
            Ok(())
        };
        run().context(|| format!("{what:?}"))?;
        // It left a mark, as Linux does, and nothing that e2fsck cannot mend.
        let repaired = image.fsck_repair()?;
        ensure!(
            matches!(repaired.code, Some(0 | 1)),
            "{what:?}: {}",
            repaired.describe()
        );
        image
            .fsck_clean()
            .context(|| format!("{what:?}: after the repair"))?;
    }
    Ok(())
}

#[test]
fn a_full_image_says_so_and_can_be_emptied() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    for args in ["-b 1024", "-b 4096 -m 0", "-b 1024 -N 64"] {
        let image = Image::of_mib(16).args(args).make()?;
        let mount = Subject::under_test().mount(image.path(), "")?;
        fs::write(mount.join("kept"), content::fill(9, 0, 100_000))?;
        File::open(mount.join("kept"))?.sync_all()?;
        let mut errors = Vec::new();
        for i in 0..200u64 {
            let made = File::create(mount.join(format!("f{i}"))).and_then(|f| {
                io::Write::write_all(&mut &f, &content::fill(i, 0, 200_000))?;
                f.sync_all()
            });
            if let Err(e) = made {
                errors.push(e.raw_os_error().unwrap_or(0));
                if errors.len() > 3 {
                    break;
                }
            }
        }
        ensure!(
            errors.len() > 3 && errors.iter().all(|e| *e == NO_SPACE),
            "{args}: errnos {errors:?}"
        );
        ensure!(
            fs::read(mount.join("kept"))? == content::fill(9, 0, 100_000),
            "{args}: /kept is damaged"
        );
        for i in 0..200u64 {
            let _ = fs::remove_file(mount.join(format!("f{i}")));
        }
        fs::write(mount.join("again"), content::fill(1, 0, 1_000_000))
            .context(|| format!("{args}: after emptying"))?;
        File::open(mount.join("again"))?.sync_all()?;
        mount.unmount()?;
        image.fsck_clean().context(|| args)?;
    }
    Ok(())
}

#[test]
fn names_too_long_are_refused_and_harm_nothing() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = Image::of_mib(16).make()?;
    let mount = Subject::under_test().mount(image.path(), "")?;
    fs::write(mount.join("f"), b"x")?;
    let long = mount.join("n".repeat(256));
    let got = [
        errno(fs::write(&long, b"")),
        errno(fs::create_dir(&long)),
        errno(fs::rename(mount.join("f"), &long)),
        errno(fs::hard_link(mount.join("f"), &long)),
        errno(std::os::unix::fs::symlink("t", &long)),
        errno(fs::metadata(&long)),
        errno(fs::remove_file(&long)),
    ];
    ensure!(got == [NAME_TOO_LONG; 7], "errnos {got:?}");
    fs::write(mount.join("n".repeat(255)), b"fits")?;
    mount.unmount()?;
    image.fsck_clean()
}

#[test]
fn a_read_only_mount_is_not_written_to() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let image = damage::with_files()?;
    let before = image.fingerprint()?;
    let mount = Subject::under_test().mount(image.path(), "ro")?;
    let file = mount.join("file");
    let got = [
        errno(fs::write(mount.join("new"), b"")),
        errno(fs::create_dir(mount.join("d"))),
        errno(fs::remove_file(&file)),
        errno(fs::rename(&file, mount.join("g"))),
        errno(File::options().write(true).open(&file)),
        errno(fs::set_permissions(
            &file,
            std::os::unix::fs::PermissionsExt::from_mode(0o600),
        )),
        errno(fs::hard_link(&file, mount.join("h"))),
    ];
    ensure!(got == [READ_ONLY; 7], "errnos {got:?}");
    fs::read(&file)?;
    mount.unmount()?;
    ensure!(image.fingerprint()? == before, "the image was written to");
    Ok(())
}
