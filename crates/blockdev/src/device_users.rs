//! Users of a block device that keep others from opening it exclusively.
//!
//! The kernel says only that a device is busy. What it has mounted, swaps to or has made another
//! device of is listed, and so are the files that processes have open, as far as this process may
//! look. A device whose user is in no list is held for a moment, or by a holder that cannot be
//! seen.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

use crate::loops::LoopUse;

/// Returns how Linux itself uses the device: `None` if no list says that it does.
pub(crate) fn of_kernel(device: u64) -> Option<String> {
    let family = family(device);
    let mounted = mounts().find(|(number, _)| family.contains(number));
    if let Some((_, directory)) = mounted {
        return Some(format!("Linux, which has it mounted on {directory}"));
    }
    let made = family.iter().find_map(|&one| holder(one));
    if let Some(made) = made {
        return Some(format!("Linux, which has made the device {made} of it"));
    }
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let swap_files = swaps
        .lines()
        .skip(1)
        .filter_map(|line| line.split(' ').next());
    let is_swap = swap_files
        .map(Path::new)
        .any(|path| is_device_name(path) && is_one_of(path, &family));
    is_swap.then(|| "Linux, which swaps to it".to_owned())
}

/// Names a process that has the device open.
pub(crate) fn of_process(device: u64) -> Option<String> {
    let family = family(device);
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.into_iter().find_map(|process| {
        let id: u32 = process.file_name().to_str()?.parse().ok()?;
        let mut open = fs::read_dir(process.path().join("fd")).ok()?.flatten();
        open.find(|file| {
            let link = file.path();
            // The name alone is read first: to ask about a file may wait for a dead server.
            fs::read_link(&link).is_ok_and(|name| is_device_name(&name))
                && is_one_of(&link, &family)
        })?;
        let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
        Some(format!(
            "another process: {} ({id}) has it open",
            name.trim_end()
        ))
    })
}

/// Returns whether a loop device goes as soon as its last opener has closed it: nothing is mounted
/// from it, and Linux was told to detach it.
pub(crate) fn is_going(one: &LoopUse) -> bool {
    let name = one.device.file_name().unwrap_or_default();
    let flag = Path::new("/sys/block").join(name).join("loop/autoclear");
    let number = one.device.metadata().map(|metadata| metadata.rdev());
    fs::read(flag).is_ok_and(|flag| flag.starts_with(b"1"))
        && number.is_ok_and(|number| of_kernel(number).is_none())
}

/// The device, its partitions, and the disk that it is a partition of.
fn family(device: u64) -> Vec<u64> {
    let own = sys(device);
    let mut family = vec![device];
    if own.join("partition").exists() {
        family.extend(number_in(&own.join("../dev")));
    }
    let entries = fs::read_dir(&own).into_iter().flatten().flatten();
    let partitions = entries.filter(|entry| entry.path().join("partition").exists());
    family.extend(partitions.filter_map(|entry| number_in(&entry.path().join("dev"))));
    family
}

fn sys(device: u64) -> PathBuf {
    let name = format!("{}:{}", major(device), minor(device));
    let link = Path::new("/sys/dev/block").join(name);
    // Or `..` would be that of the link.
    link.canonicalize().unwrap_or(link)
}

/// The device number in a file of sysfs.
fn number_in(file: &Path) -> Option<u64> {
    parse_number(fs::read_to_string(file).ok()?.trim_end())
}

fn parse_number(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(rustix::fs::makedev(
        major.parse().ok()?,
        minor.parse().ok()?,
    ))
}

/// A device that is made of this one.
fn holder(device: u64) -> Option<String> {
    let mut holders = fs::read_dir(sys(device).join("holders")).ok()?.flatten();
    let name = holders.next()?.file_name();
    Some(format!("/dev/{}", name.to_string_lossy()))
}

/// The device number and the directory of each mount.
fn mounts() -> impl Iterator<Item = (u64, String)> {
    let all = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let all = String::from_utf8_lossy(&all).into_owned();
    let mounts: Vec<_> = all.lines().filter_map(mount).collect();
    mounts.into_iter()
}

/// The device number and the directory of a line of `mountinfo`.
fn mount(line: &str) -> Option<(u64, String)> {
    let mut fields = line.split(' ').skip(2);
    let number = parse_number(fields.next()?)?;
    Some((number, fields.nth(1)?.to_owned()))
}

/// Returns whether a file of this name may be a device: one below `/dev`, but not where users mount
/// and keep files of their own.
fn is_device_name(name: &Path) -> bool {
    name.starts_with("/dev") && !name.starts_with("/dev/shm")
}

/// Returns whether `path` leads to one of the devices.
fn is_one_of(path: &Path, devices: &[u64]) -> bool {
    path.metadata().is_ok_and(|metadata| {
        metadata.file_type().is_block_device() && devices.contains(&metadata.rdev())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_has_its_device_in_the_third_field_and_its_place_in_the_fifth() {
        let line = "29 1 7:3 / /mnt/a\\040b rw,relatime shared:1 - ext4 /dev/loop3 rw";
        let number = rustix::fs::makedev(7, 3);
        assert_eq!(mount(line), Some((number, "/mnt/a\\040b".to_owned())));
        assert_eq!(mount("29 1 7:x / /mnt rw"), None);
        assert_eq!(mount("29 1 7:3"), None);
    }

    #[test]
    fn files_outside_of_the_devices_are_not_asked_about() {
        for name in ["/dev/sda", "/dev/mapper/root", "/dev/loop0 (deleted)"] {
            assert!(is_device_name(Path::new(name)), "{name}");
        }
        for name in ["/mnt/dead/f", "/device", "/dev/shm/dead/f", "pipe:[1]"] {
            assert!(!is_device_name(Path::new(name)), "{name}");
        }
    }
}
