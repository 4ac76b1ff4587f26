//! Multiple mount protection: volumes that two hosts can reach. The other host is Linux on a loop
//! device, which the devices of these tests do not look for.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use extant_check::check_image;
use extant_disk::mmp::{MMP_SIZE, Mmp, MmpState};
use extant_engine::device::{BlockDevice, DevOff};
use extant_engine::{Cred, Error, Volume, VolumeOptions};
use extant_testkit::{Cmd, Image, LoopDevice, Need, TempDir, need};
use zerocopy::IntoBytes;

/// A file without a lock, as another host would reach it.
struct Shared(File, u64);

impl BlockDevice for Shared {
    fn len(&self) -> u64 {
        self.1
    }
    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(buf, offset.get())
    }
    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.0.write_all_at(buf, offset.get())
    }
    fn flush(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

fn shared(path: &Path) -> Arc<dyn BlockDevice> {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let len = file.metadata().unwrap().len();
    Arc::new(Shared(file, len))
}

fn mount(image: &Image) -> Result<Volume, Error> {
    VolumeOptions::new()
        .write(true)
        .open_on(shared(image.path()))
}

fn image() -> Image {
    // Without checksums, so that the tests can change the block.
    let args = "-b 4096 -O mmp,^metadata_csum -E mmp_update_interval=1";
    Image::of_mib(32).args(args).make().unwrap()
}

fn block_of(image: &Image) -> u64 {
    let number: u64 = image.header("MMP block number").unwrap().parse().unwrap();
    number * 4096
}

fn state(image: &Image) -> MmpState {
    let bytes = image.bytes(block_of(image), MMP_SIZE).unwrap();
    Mmp::parse(&bytes, None).unwrap().state()
}

fn set(image: &Image, change: impl FnOnce(&mut Mmp)) {
    let at = block_of(image);
    image
        .patch(at, MMP_SIZE, |bytes| {
            let mut mmp = Mmp::parse(bytes, None).unwrap();
            change(&mut mmp);
            bytes.copy_from_slice(mmp.as_bytes());
        })
        .unwrap();
}

#[test]
fn a_mount_shows_life_and_ends_clean_with_checksums_too() {
    for args in ["-O mmp", "-b 1024 -O mmp,^metadata_csum"] {
        let image = Image::of_mib(32).args(args).make().unwrap();
        let volume = mount(&image).unwrap();
        // It watches the volume first, as another host would.
        let said = Cmd::new("e2fsck").arg("-fp").arg(image.path());
        let said = said.run().unwrap();
        let text = format!("{}{}", said.out, said.err);
        assert!(said.code != Some(0) && text.contains("MMP"), "{text}");
        let root = volume.root().unwrap();
        volume.create(&root, b"f", 0o644, &Cred::root()).unwrap();
        volume.unmount().unwrap();
        image.fsck_clean().unwrap();
        let report = check_image(image.path(), &extant_check::CheckOptions::default()).unwrap();
        assert!(report.is_clean() && report.notes.is_empty(), "{report:?}");
    }
}

/// The number of a volume whose host died does not change; the volume is taken when that is known.
#[test]
fn a_volume_left_in_use_is_watched_and_taken() {
    let image = image();
    set(&image, |mmp| mmp.set_state(MmpState::InUse(77)));
    let volume = mount(&image).unwrap();
    assert!(matches!(state(&image), MmpState::InUse(seq) if seq != 77));
    volume.unmount().unwrap();
    assert_eq!(state(&image), MmpState::Clean);
}

#[test]
fn a_volume_that_e2fsck_has_is_refused() {
    let image = image();
    set(&image, |mmp| mmp.set_state(MmpState::Fsck));
    let error = mount(&image).map(drop).unwrap_err().to_string();
    assert!(error.contains("in use by e2fsck"), "{error}");
    // To look needs no protection.
    drop(VolumeOptions::new().open(image.path()).unwrap());
    assert_eq!(state(&image), MmpState::Fsck);
}

/// The thread looks before it writes: what another host has written is neither overwritten nor
/// ignored.
#[test]
fn a_volume_taken_by_another_host_is_shut_down() {
    let image = image();
    let volume = mount(&image).unwrap();
    let root = volume.root().unwrap();
    set(&image, |mmp| {
        mmp.set_state(MmpState::InUse(99));
        mmp.node[..6].copy_from_slice(b"other\0");
    });
    let mut last = Ok(());
    for number in 0..2000u32 {
        let name = format!("f{number}");
        last = volume
            .create(&root, name.as_bytes(), 0o644, &Cred::root())
            .map(drop);
        if last.is_err() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let error = last.unwrap_err().to_string();
    assert!(error.contains("in use by host 'other'"), "{error}");
    let _ = volume.unmount();
    assert_eq!(state(&image), MmpState::InUse(99));
}

#[test]
fn linux_and_this_keep_each_other_away() {
    if !need(&[Need::Root, Need::Loop]) {
        return;
    }
    let image = image();
    let device = LoopDevice::over(image.path(), 512).unwrap();
    let dir = TempDir::new("linux").unwrap();
    let linux = || {
        Cmd::new("mount")
            .args(["-t", "ext4"])
            .arg(device.path())
            .arg(dir.path())
            .run()
            .unwrap()
    };
    let ours = mount(&image).unwrap();
    let refused = linux();
    assert_ne!(refused.code, Some(0), "{}", refused.describe());
    ours.unmount().unwrap();
    let mounted = linux();
    assert_eq!(mounted.code, Some(0), "{}", mounted.describe());
    let error = mount(&image).map(drop);
    Cmd::new("umount").arg(dir.path()).ok().unwrap();
    assert!(matches!(error, Err(Error::InUse { .. })), "{error:?}");
    // Its end is an end.
    mount(&image).unwrap().unmount().unwrap();
    image.fsck_clean().unwrap();
}
