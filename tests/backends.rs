//! A mount over io_uring, past the host's cache: the same files, a clean image, and a device that
//! is free at once.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;

use extant_testkit::{
    Cmd, Image, LoopDevice, Mount, Need, Result, Rng, content, ensure, need, tools,
};

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Fuse,
    Need::Loop,
    Need::IoUring,
    Need::Tool("mke2fs"),
];

#[test]
fn a_mount_past_the_hosts_cache_keeps_its_files() -> Result<()> {
    if !need(NEEDS) {
        return Ok(());
    }
    let extant = tools::extant()?;
    let image = Image::of_mib(96).junk().make()?;
    let disk = LoopDevice::over(image.path(), 512)?;
    let mut lens = Vec::new();
    for round in 0..3u64 {
        let mount = Mount::by_extant(&extant, disk.path(), "backend=io_uring")?;
        let mut rng = Rng::new(round);
        for (number, &len) in (0..).zip(&lens) {
            let path = mount.join(format!("f{number}"));
            ensure!(
                fs::read(&path)? == content::fill(number, 0, len),
                "f{number} after {round} mounts"
            );
            fs::remove_file(path)?;
        }
        lens = (0..24)
            .map(|_| [3000, 70_000, 2 << 20][rng.index(3)])
            .collect();
        for (number, &len) in (0..).zip(&lens) {
            let mut file = File::create(mount.join(format!("f{number}")))?;
            let bytes = content::fill(number, 0, len);
            file.write_all(&bytes)?;
            // Once more, in the middle.
            let at = rng.index(len);
            file.write_all_at(bytes.get(at..).unwrap_or_default(), at as u64)?;
            if rng.chance(50) {
                file.sync_all()?;
            }
        }
        let stats = Cmd::new(&extant).arg("stats").arg(mount.dir()).ok()?.out;
        for word in ["device_io_uring", "device_direct"] {
            let line = stats.lines().find(|line| line.starts_with(word));
            ensure!(
                line.is_some_and(|line| line.trim_end().ends_with(" 1")),
                "{word}: {line:?}"
            );
        }
        mount.unmount()?;
        image.fsck_clean()?;
    }
    Ok(())
}
