//! Variants that are compared: their construction, and where they differ.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use extant::{ClearProbe, EncryptionPolicy, Tuning};
use extant_blockdev::{FileDevice, FileIo, FileQueues, OpenMode};
use extant_crypt::{ContentsCipher, Context, MasterKey, NONCE_BYTES};
use extant_extent_io_tree::TreeTuning;
use extant_host::{Cmd, Error, Image, Need, Result, TempDir, encryption, programs};

use crate::feature::{Feature, KEY};
use crate::null_data::NullData;
use crate::plan::{Bench, Plan};
use crate::target::{DeviceFile, Driver, Engine, Fresh, Host, Medium, Memory, Target, TreeOnly};
use crate::times;

/// How memory and device are set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Setup {
    /// So much memory that nothing is written back by itself.
    Cache,
    /// The same, and the time of each clear in an I/O tree is taken.
    CacheTimed,
    /// Memory for one file: data is written back while it is being written.
    Writeback,
    /// The same, and the time of each clear in an I/O tree is taken.
    WritebackTimed,
    /// As [`Setup::Cache`], and data that is written goes nowhere.
    Null,
    /// As [`Setup::Null`], with room for a longer file.
    Direct,
    /// The same, and the time of each clear in an I/O tree is taken.
    DirectTimed,
    /// As [`Setup::DirectTimed`], with room for a file of the seed's size.
    Sparse,
    /// As [`Setup::Cache`], with inodes for many files.
    Names,
    /// An I/O tree and nothing else.
    Tree,
    /// The same, and the time of each clear is taken.
    TreeTimed,
    /// As [`Setup::Writeback`], on a file of the disk, past the host's cache.
    Disk,
    /// The same through the host's cache.
    DiskCached,
    /// As [`Setup::Names`], with a feature, and a file that shows it.
    Feature(Feature),
}

impl Setup {
    /// Returns whether a first sample is thrown away. One that begins with an empty file, and lasts
    /// long, needs none before it.
    pub(crate) fn is_warmed_up(self) -> bool {
        self != Setup::Sparse
    }

    /// Returns whether the device is a file of the disk.
    fn on_disk(self) -> bool {
        matches!(self, Setup::Disk | Setup::DiskCached)
    }
}

/// Construction of a variant.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Copies in memory.
    Memcpy,
    /// Zeroing memory.
    Memset,
    /// Copies in memory that are encrypted and decrypted.
    Cipher,
    /// The library in this process, tuned.
    Library(fn(&mut Tuning)),
    /// `extant mount`, with these options.
    Mount(&'static str),
    /// A file system of Linux's on a loop device.
    Linux(&'static str),
    /// e2fsprogs' FUSE driver.
    Fuse2fs,
    /// libfuse's example over tmpfs.
    Passthrough,
    /// A file of the host as a device, with no file system.
    Device(FileIo),
}

impl Kind {
    /// Returns whether it is a device alone.
    pub(crate) fn is_device(self) -> bool {
        matches!(self, Kind::Device(_))
    }
}

/// One of the compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variant {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) about: &'static str,
}

/// How many times longer the file of [`Setup::Direct`] is than those that are streamed: 1 GiB.
pub(crate) const LONGER: u64 = 4;

/// Arguments for mke2fs: the root directory belongs to the user that measures.
pub(crate) const MKE2FS: &str = "-b 4096 -E root_owner";

/// Options of a mount over rings. The kernel's switch for them is set where it may be.
pub(crate) const OVER_RINGS: &str = "transport=uring";

/// The longest that the mounts of a family, which live through all of its rounds, may take.
const FAMILY: Duration = Duration::from_secs(3600);

pub(crate) const fn io(direct: bool, queues: FileQueues) -> FileIo {
    FileIo { direct, queues }
}

/// Returns whether it is the library as it comes, or without trims: the two that the benchmark of
/// trims compares.
pub(crate) fn is_about_trims(kind: Kind) -> bool {
    is_default_but(kind, |tuning| tuning.trim_on_clear = true)
}

/// Returns whether it is one of those, or locks each direct request in the tree.
pub(crate) fn is_about_locks(kind: Kind) -> bool {
    is_default_but(kind, |tuning| {
        tuning.trim_on_clear = true;
        tuning.lock_slots = true;
    })
}

/// Returns whether it is one of those that compare trims, or unlocks no fronts.
pub(crate) fn is_about_fronts(kind: Kind) -> bool {
    is_default_but(kind, |tuning| {
        tuning.trim_on_clear = true;
        tuning.release_fronts = true;
    })
}

fn is_default_but(kind: Kind, reset: fn(&mut Tuning)) -> bool {
    let Kind::Library(tune) = kind else {
        return false;
    };
    let mut tuning = Tuning::default();
    tune(&mut tuning);
    reset(&mut tuning);
    tuning == Tuning::default()
}

impl Variant {
    /// Returns whether its difference from others shows in the case of this name. Both data paths
    /// read by the same code, so `bufferhead` has no figure of its own for reads; `base` has, for
    /// its small folios.
    pub(crate) fn differs_in(&self, bench: Bench, case: &str) -> bool {
        let reads = case.contains("read/");
        if self.kind.is_device() || bench == Bench::Device {
            return self.kind.is_device() && bench == Bench::Device;
        }
        let costs = bench == Bench::Features;
        match self.kind {
            Kind::Cipher => return costs && ["encrypt/read", "encrypt/write"].contains(&case),
            Kind::Linux("ext4") if costs => return Feature::of_case(case).is_known_to_linux(),
            _ if costs => return ["iomap", "mount"].contains(&self.name),
            _ => {}
        }
        if self.name == "nojoint" {
            return bench == Bench::Meta && case.starts_with("small/");
        }
        if matches!(self.kind, Kind::Library(_)) {
            match bench {
                Bench::Scale => return self.name == "iomap",
                Bench::Large => return self.is_of_large(case),
                Bench::Meta | Bench::Direct => return self.name == "iomap",
                Bench::Disk if self.name == "bufferhead" => return !reads,
                Bench::Disk => return ["iomap", "base"].contains(&self.name),
                _ => {}
            }
        }
        // Where requests are what counts.
        if self.is_over_rings() {
            return matches!(bench, Bench::Peers | Bench::Meta | Bench::Psync);
        }
        if bench == Bench::Scale {
            return ["mount", "kernel-ext4", "fuse2fs"].contains(&self.name);
        }
        if bench == Bench::Large {
            return self.is_of_large(case);
        }
        let sparse = case.starts_with("randwrite/sparse/");
        match self.name {
            "notrim" => bench == Bench::Randwrite && !sparse,
            "noslots-notrim" => bench == Bench::Randwrite && sparse,
            "noslots" | "nofronts" => bench == Bench::Randwrite,
            "bufferhead" | "bufferhead-fullwalk" => !reads,
            "base-dirty-inode" => !reads,
            _ => true,
        }
    }

    /// Returns whether a case of the seeds' sizes is measured with it: the pairs of the seeds, and
    /// but for syncs and overwrites under writeback, which take long there, Linux and the mount.
    fn is_of_large(&self, case: &str) -> bool {
        let appends = case.contains("/append/");
        match self.name {
            "iomap" | "base" => true,
            "bufferhead" => !appends && !case.contains("read/"),
            "base-dirty-inode" => appends,
            "kernel-ext4" | "mount" => !case.contains("+sync/") && !case.contains("overwrite+"),
            _ => false,
        }
    }

    /// Returns whether it is another project's program.
    pub(crate) fn is_peer(&self) -> bool {
        matches!(
            self.kind,
            Kind::Linux(_) | Kind::Fuse2fs | Kind::Passthrough
        )
    }

    /// The setup that stands for `setup` here: only the library knows every difference. `None` if
    /// there is none.
    pub(crate) fn setup(&self, setup: Setup) -> Option<Setup> {
        match (self.kind, setup) {
            (Kind::Library(_), setup) => Some(setup),
            (_, Setup::Null) => None,
            (Kind::Memcpy | Kind::Memset | Kind::Passthrough, setup) if setup.on_disk() => None,
            (Kind::Fuse2fs, Setup::Disk) => None,
            (_, Setup::Names | Setup::Disk | Setup::DiskCached | Setup::Feature(_)) => Some(setup),
            _ => Some(Setup::Cache),
        }
    }

    /// The program that mounts it; `None` for what is not mounted.
    pub(crate) fn driver(&self, plan: &Plan) -> Option<Driver> {
        match self.kind {
            Kind::Memcpy | Kind::Memset | Kind::Cipher | Kind::Library(_) | Kind::Device(_) => None,
            Kind::Mount(options) => Some(Driver::Extant(plan.extant.clone(), options)),
            Kind::Linux(kind) => Some(Driver::Linux(kind)),
            Kind::Fuse2fs => Some(Driver::Fuse2fs),
            Kind::Passthrough => Some(Driver::Passthrough),
        }
    }

    /// Returns whether a daemon serves it.
    pub(crate) fn has_daemon(&self) -> bool {
        matches!(
            self.kind,
            Kind::Mount(_) | Kind::Fuse2fs | Kind::Passthrough
        )
    }

    /// Returns whether its requests come over rings, where they cannot be seen from outside.
    pub(crate) fn is_over_rings(&self) -> bool {
        matches!(self.kind, Kind::Mount(OVER_RINGS))
    }

    /// A file system of this kind in RAM, of `mib` MiB, that is not mounted.
    pub(crate) fn fresh(&self, plan: &Plan, mib: u64) -> Result<Fresh> {
        let driver = self.driver(plan);
        let driver = driver.ok_or_else(|| Error::new(format!("{} is no mount", self.name)))?;
        let medium = Medium {
            mib,
            args: MKE2FS.to_owned(),
            dir: None,
            past_cache: false,
            linux_options: "",
            feature: None,
        };
        Fresh::make(driver, &medium)
    }

    /// Why it cannot be measured here.
    pub(crate) fn missing(&self, plan: &Plan) -> Option<String> {
        let first = |needs: &[Need]| needs.iter().find_map(|n| n.missing());
        match self.kind {
            Kind::Memcpy | Kind::Memset | Kind::Cipher => None,
            Kind::Library(_) => first(&[Need::Tool("mke2fs")]),
            Kind::Mount(_) if !plan.extant.is_file() => {
                Some(format!("no command at {}", plan.extant.display()))
            }
            Kind::Mount(OVER_RINGS) => first(&[Need::Fuse, Need::FuseRings, Need::Tool("mke2fs")]),
            Kind::Mount(_) => first(&[Need::Fuse, Need::Tool("mke2fs")]),
            Kind::Linux("xfs") if !kernel_knows("xfs") => Some("this kernel has no xfs".into()),
            Kind::Linux("xfs") => first(&[Need::Loop, Need::Tool("mkfs.xfs")]),
            Kind::Linux(_) => first(&[Need::Loop, Need::Tool("mke2fs")]),
            Kind::Fuse2fs => first(&[Need::Fuse, Need::Tool("mke2fs"), Need::Tool("fuse2fs")]),
            Kind::Passthrough => first(&[Need::Fuse]).or_else(programs::missing_passthrough),
            Kind::Device(io) => {
                let uring = (io.queues == FileQueues::IoUring).then_some(Need::IoUring);
                let missing = uring.and_then(Need::missing);
                missing.or_else(|| io.direct.then(|| no_direct(&plan.dir)).flatten())
            }
        }
    }

    /// A target of this kind, freshly made.
    pub(crate) fn target(&self, plan: &Plan, setup: Setup) -> Result<Box<dyn Target>> {
        let medium = medium(plan, setup);
        if let Some(driver) = self.driver(plan) {
            let is_linux = matches!(driver, Driver::Linux(_));
            let host = Host::over(Fresh::make(driver, &medium)?)?;
            host.mount().watch_for(FAMILY);
            match setup {
                Setup::Feature(Feature::Encrypt) if is_linux => {
                    encryption::add_key(host.mount().dir(), &KEY)?;
                }
                Setup::Feature(Feature::Encrypt) => {
                    let key = Cmd::new(&plan.extant).args(["key", "add"]);
                    key.arg(host.mount().dir()).arg("-").stdin(KEY).ok()?;
                }
                _ => {}
            }
            return Ok(Box::new(host));
        }
        Ok(match self.kind {
            Kind::Library(tune) => library(plan, setup, &medium, tune)?,
            Kind::Device(io) => Box::new(device(plan, io)?),
            Kind::Memset => Box::new(Memory {
                zeros: true,
                ..Memory::default()
            }),
            Kind::Cipher => Box::new(Memory {
                cipher: Some(Arc::new(cipher()?)),
                ..Memory::default()
            }),
            _ => Box::new(Memory::default()),
        })
    }
}

/// Twice the largest file and a journal; xfs wants at least 300 MiB. Left alone, mke2fs takes
/// blocks of 1 KiB at such sizes.
fn medium(plan: &Plan, setup: Setup) -> Medium {
    let mib = ((plan.stream_bytes >> 20) * 2 + 128).max(320);
    Medium {
        mib: match setup {
            Setup::Names | Setup::Feature(_) => 1024,
            Setup::Sparse => (plan.sparse_bytes() >> 20) * 9 / 8 + 768,
            Setup::Direct | Setup::DirectTimed => mib * LONGER,
            _ => mib,
        },
        args: match setup {
            Setup::Names => format!("{MKE2FS} -N 400000"),
            Setup::Feature(feature) => format!("{MKE2FS} -N 400000{}", feature.args()),
            _ => MKE2FS.to_owned(),
        },
        dir: setup.on_disk().then(|| plan.dir.clone()),
        past_cache: setup == Setup::Disk,
        linux_options: "",
        feature: match setup {
            Setup::Feature(feature) => Some((feature, plan.stream_bytes)),
            _ => None,
        },
    }
}

/// That of the usual policy, under a key of its own.
fn cipher() -> Result<ContentsCipher> {
    let key = MasterKey::new(&KEY)?;
    let policy = EncryptionPolicy::usual(key.identifier());
    let nonce = [1; NONCE_BYTES];
    Ok(key.contents(&Context { policy, nonce }, 12, &[0; 16])?)
}

/// The library, set up.
fn library(
    plan: &Plan,
    setup: Setup,
    medium: &Medium,
    tune: fn(&mut Tuning),
) -> Result<Box<dyn Target>> {
    let mut tuning = Tuning::default();
    tuning.page_cache_bytes = Some(match setup {
        Setup::Writeback | Setup::WritebackTimed => plan.stream_bytes,
        Setup::Direct | Setup::DirectTimed | Setup::Sparse => plan.stream_bytes,
        Setup::Disk | Setup::DiskCached => plan.stream_bytes,
        _ => plan.stream_bytes * 16,
    });
    let timed = [
        Setup::CacheTimed,
        Setup::DirectTimed,
        Setup::Sparse,
        Setup::TreeTimed,
        Setup::WritebackTimed,
    ];
    if timed.contains(&setup) {
        tuning.clear_probe = Some(ClearProbe(times::record));
    }
    tune(&mut tuning);
    if plan.counting {
        tuning.flushers = 0;
    }
    let over = |device| Engine::over(device, tuning, plan.counting);
    let device = || Engine::device(&medium.image()?, medium.mib);
    Ok(match setup {
        Setup::Tree | Setup::TreeTimed => Box::new(TreeOnly::new(TreeTuning {
            trim_on_clear: tuning.trim_on_clear,
            clear_probe: tuning.clear_probe,
        })),
        Setup::Null | Setup::Direct | Setup::DirectTimed | Setup::Sparse => {
            Box::new(over(Arc::new(NullData(device()?)))?)
        }
        Setup::Cache
        | Setup::CacheTimed
        | Setup::Writeback
        | Setup::WritebackTimed
        | Setup::Names => Box::new(over(Arc::new(device()?))?),
        Setup::Feature(feature) => {
            let engine = over(Arc::new(device()?))?;
            Box::new(match feature {
                Feature::Encrypt => engine.with_key(&KEY)?,
                _ => engine,
            })
        }
        Setup::Disk | Setup::DiskCached => {
            let io = io(medium.past_cache, FileQueues::Auto);
            Box::new(Engine::over_file(medium.image()?, tuning, io)?)
        }
    })
}

/// A file of the plan's length, written whole, as a device.
fn device(plan: &Plan, io: FileIo) -> Result<DeviceFile> {
    let dir = TempDir::new_in(&plan.dir, "device")?;
    let path = dir.join("disk.img");
    let piece = vec![1; 1 << 20];
    let mut file = std::fs::File::create(&path)?;
    for _ in 0..plan.stream_bytes.div_ceil(1 << 20) {
        std::io::Write::write_all(&mut file, &piece)?;
    }
    file.sync_all()?;
    // A device takes no file that is open for writing elsewhere.
    drop(file);
    let device = FileDevice::open_with(&path, OpenMode::ReadWrite, io)?;
    Ok(DeviceFile {
        device: Arc::new(device),
        _dir: dir,
    })
}

/// Why files of `dir` cannot be read and written past the cache; `None` if they can.
fn no_direct(dir: &Path) -> Option<String> {
    let tried = || -> Result<bool> {
        let image = Image::of_mib(1).below(dir).empty()?;
        let io = io(true, FileQueues::Threads);
        let device = FileDevice::open_with(image.path(), OpenMode::ReadWrite, io)?;
        Ok(device.direct_alignment().is_some())
    };
    match tried() {
        Ok(true) => None,
        Ok(false) => Some(format!("{} has no O_DIRECT", dir.display())),
        Err(error) => Some(format!("{}: {error}", dir.display())),
    }
}

fn kernel_knows(kind: &str) -> bool {
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    known
        .lines()
        .any(|l| l.split_whitespace().last() == Some(kind))
}

#[cfg(test)]
mod tests {
    use extant_testkit::need;
    use rustix::fs::OFlags;

    use super::*;
    use crate::variants::ALL;

    /// Returns whether this process has a file below `dir` open past the host's cache.
    fn has_open_past_cache(dir: &Path) -> bool {
        let opened = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let below = opened
            .filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|file| file.starts_with(dir)));
        let flags = below.filter_map(|fd| {
            let info = Path::new("/proc/self/fdinfo").join(fd.file_name());
            let info = std::fs::read_to_string(info).ok()?;
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
            u32::from_str_radix(flags.trim(), 8).ok()
        });
        flags
            .into_iter()
            .any(|flags| flags & OFlags::DIRECT.bits() != 0)
    }

    #[test]
    fn only_a_disk_by_that_name_is_past_the_hosts_cache() {
        let dir = TempDir::new_in(std::env::temp_dir().as_path(), "disk").unwrap();
        if !need(&[Need::Tool("mke2fs")]) || no_direct(dir.path()).is_some() {
            return;
        }
        let plan = Plan {
            dir: dir.path().to_owned(),
            ..Plan::tiny("/nonexistent".into())
        };
        let iomap = ALL.iter().find(|variant| variant.name == "iomap").unwrap();
        for (setup, expected) in [(Setup::Disk, true), (Setup::DiskCached, false)] {
            let target = iomap.target(&plan, setup).unwrap();
            assert_eq!(has_open_past_cache(dir.path()), expected, "{setup:?}");
            target.close().unwrap();
        }
    }
}
