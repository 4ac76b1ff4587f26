//! What is compared. A further variant of the library is a line in [`ALL`].

use std::sync::Arc;

use extant::{BufferedPath, ClearProbe, Tuning};
use extant_extent_io_tree::TreeTuning;
use extant_testkit::{Cmd, Error, Image, Mount, Need, Result, TempDir, tools};

use crate::null_data::NullData;
use crate::place::{Engine, Host, Memory, Place, TreeOnly};
use crate::plan::{Bench, Plan};
use crate::times;

/// How memory and device are set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Setup {
    /// So much memory that nothing is written back by itself.
    Cache,
    /// Memory for one file: data is written back while it is being written.
    Writeback,
    /// As [`Setup::Cache`], and data that is written goes nowhere.
    Null,
    /// As [`Setup::Null`], with room for a longer file.
    Direct,
    /// The same, and the time of each clear in an I/O tree is taken.
    DirectTimed,
    /// As [`Setup::Cache`], with inodes for many files.
    Names,
    /// An I/O tree and nothing else.
    Tree,
    /// The same, and the time of each clear is taken.
    TreeTimed,
}

/// What a variant is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Copies in memory.
    Memcpy,
    /// Zeroing memory.
    Memset,
    /// The library in this process, tuned.
    Library(fn(&mut Tuning)),
    /// `extant mount`.
    Mount,
    /// A file system of Linux's on a loop device.
    Linux(&'static str),
    /// e2fsprogs' FUSE driver.
    Fuse2fs,
    /// libfuse's example over tmpfs.
    Passthrough,
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

/// Generous caching: the strongest the example offers.
const PASSTHROUGH: &str = "writeback,cache=always,timeout=86400,clone_fd";

pub(crate) const ALL: &[Variant] = &[
    Variant {
        name: "memcpy",
        kind: Kind::Memcpy,
        about: "copies between two buffers: the limit",
    },
    Variant {
        name: "memset",
        kind: Kind::Memset,
        about: "zeroing a buffer: the limit for holes",
    },
    Variant {
        name: "iomap",
        kind: Kind::Library(|_| {}),
        about: "the library over a device in memory, as it comes",
    },
    Variant {
        name: "notrim",
        kind: Kind::Library(|tuning| tuning.trim_on_clear = false),
        about: "the same with I/O trees that split, insert and remove where a record could be trimmed",
    },
    Variant {
        name: "nopost",
        kind: Kind::Library(|tuning| tuning.post_ranges = false),
        about: "the same with a record in the I/O tree for every direct request",
    },
    Variant {
        name: "iomap-order0",
        kind: Kind::Library(|tuning| tuning.max_folio_order = 0),
        about: "the same with folios of 4 KiB",
    },
    Variant {
        name: "bufferhead",
        kind: Kind::Library(|tuning| tuning.buffered_path = BufferedPath::BufferHead),
        about: "the library on its per-block path, large folios, walks that stop",
    },
    Variant {
        name: "bufferhead-fullwalk",
        kind: Kind::Library(|tuning| {
            tuning.buffered_path = BufferedPath::BufferHead;
            tuning.stop_at_range_end = false;
        }),
        about: "the same with walks over the whole folio",
    },
    Variant {
        name: "base",
        kind: Kind::Library(|tuning| {
            tuning.buffered_path = BufferedPath::BufferHead;
            tuning.max_folio_order = 0;
        }),
        about: "the per-block path with folios of 4 KiB",
    },
    Variant {
        name: "base-dirty-inode",
        kind: Kind::Library(|tuning| {
            tuning.buffered_path = BufferedPath::BufferHead;
            tuning.max_folio_order = 0;
            tuning.dirty_inode_on_append = true;
        }),
        about: "the same, and every write that makes a file longer stores its inode",
    },
    Variant {
        name: "mount",
        kind: Kind::Mount,
        about: "extant mount, no options, image in RAM",
    },
    Variant {
        name: "kernel-ext4",
        kind: Kind::Linux("ext4"),
        about: "Linux's ext4 on a loop device, no options, image in RAM",
    },
    Variant {
        name: "kernel-xfs",
        kind: Kind::Linux("xfs"),
        about: "Linux's xfs on a loop device, no options, image in RAM",
    },
    Variant {
        name: "fuse2fs",
        kind: Kind::Fuse2fs,
        about: "fuse2fs, no options, image in RAM",
    },
    Variant {
        name: "passthrough",
        kind: Kind::Passthrough,
        about: "libfuse's passthrough_ll over tmpfs, -o writeback,cache=always,timeout=86400,clone_fd",
    },
];

/// Whether it is the library as it comes, or without trims: what the benchmark of these compares.
pub(crate) fn is_about_trims(kind: Kind) -> bool {
    is_default_but(kind, |tuning| tuning.trim_on_clear = true)
}

/// Whether it is one of those, or locks each direct request in the tree.
pub(crate) fn is_about_locks(kind: Kind) -> bool {
    is_default_but(kind, |tuning| {
        tuning.trim_on_clear = true;
        tuning.post_ranges = true;
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

/// The names of all variants.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|v| v.name)
}

impl Variant {
    /// Whether what it differs in from others shows in the case of this name. Both data paths read
    /// by the same code, so `bufferhead` has no figure of its own for reads; `base` has, for its
    /// small folios.
    pub(crate) fn differs_in(&self, bench: Bench, case: &str) -> bool {
        let reads = case.starts_with("read/");
        if bench == Bench::Meta && matches!(self.kind, Kind::Library(_)) {
            return self.name == "iomap";
        }
        match self.name {
            "notrim" | "nopost" => bench == Bench::Randwrite,
            "bufferhead" | "bufferhead-fullwalk" => !reads,
            "base-dirty-inode" => !reads,
            _ => true,
        }
    }

    /// Whether it is somebody else's program.
    pub(crate) fn is_peer(&self) -> bool {
        matches!(
            self.kind,
            Kind::Linux(_) | Kind::Fuse2fs | Kind::Passthrough
        )
    }

    /// The setup that stands for `setup` here: only the library knows the difference. `None` if there is none.
    pub(crate) fn setup(&self, setup: Setup) -> Option<Setup> {
        match (self.kind, setup) {
            (Kind::Library(_), setup) => Some(setup),
            (_, Setup::Null) => None,
            (_, Setup::Names) => Some(Setup::Names),
            _ => Some(Setup::Cache),
        }
    }

    /// Why it cannot be measured here.
    pub(crate) fn missing(&self, plan: &Plan) -> Option<String> {
        let first = |needs: &[Need]| needs.iter().find_map(|n| n.missing());
        match self.kind {
            Kind::Memcpy | Kind::Memset => None,
            Kind::Library(_) => first(&[Need::Tool("mke2fs")]),
            Kind::Mount if !plan.extant.is_file() => {
                Some(format!("no command at {}", plan.extant.display()))
            }
            Kind::Mount => first(&[Need::Fuse, Need::Tool("mke2fs")]),
            Kind::Linux("xfs") if !kernel_knows("xfs") => Some("this kernel has no xfs".into()),
            Kind::Linux("xfs") => first(&[Need::Loop, Need::Tool("mkfs.xfs")]),
            Kind::Linux(_) => first(&[Need::Loop, Need::Tool("mke2fs")]),
            Kind::Fuse2fs => first(&[Need::Fuse, Need::Tool("mke2fs"), Need::Tool("fuse2fs")]),
            Kind::Passthrough => first(&[Need::Fuse])
                .or_else(|| tools::passthrough_ll().err().map(|e| e.to_string())),
        }
    }

    /// A place of this kind, freshly made.
    pub(crate) fn place(&self, plan: &Plan, setup: Setup) -> Result<Box<dyn Place>> {
        // Twice the largest file and a journal; xfs wants at least 300 MiB.
        let mib = match setup {
            Setup::Names => 1024,
            _ => ((plan.stream_bytes >> 20) * 2 + 128).max(320),
        };
        let fresh_image = |mib| fresh_image(mib, setup);
        let host = |mount, image, ext4| Host {
            mount,
            image: Some(image),
            below: None,
            extant: matches!(self.kind, Kind::Mount),
            ext4,
        };
        Ok(match self.kind {
            Kind::Memcpy => Box::new(Memory { zeros: false }),
            Kind::Memset => Box::new(Memory { zeros: true }),
            Kind::Library(tune) => {
                let mut tuning = Tuning::default();
                tuning.page_cache_bytes = Some(match setup {
                    Setup::Writeback | Setup::Direct | Setup::DirectTimed => plan.stream_bytes,
                    _ => plan.stream_bytes * 16,
                });
                if matches!(setup, Setup::DirectTimed | Setup::TreeTimed) {
                    tuning.clear_probe = Some(ClearProbe(times::record));
                }
                tune(&mut tuning);
                if plan.counting {
                    tuning.flushers = 0;
                }
                let over = |device| Engine::over(device, tuning, plan.counting);
                let device = |mib| Engine::device(&fresh_image(mib)?, mib);
                let null = |mib| Ok::<_, Error>(Arc::new(NullData(device(mib)?)));
                match setup {
                    Setup::Tree | Setup::TreeTimed => Box::new(TreeOnly::new(TreeTuning {
                        trim_on_clear: tuning.trim_on_clear,
                        clear_probe: tuning.clear_probe,
                    })),
                    Setup::Null => Box::new(over(null(mib)?)?),
                    Setup::Direct | Setup::DirectTimed => Box::new(over(null(mib * LONGER)?)?),
                    Setup::Cache | Setup::Writeback | Setup::Names => {
                        Box::new(over(Arc::new(device(mib)?))?)
                    }
                }
            }
            Kind::Mount => {
                let image = fresh_image(mib)?;
                let mount = Mount::by_extant(&plan.extant, image.path(), "")?;
                Box::new(host(mount, image, true))
            }
            Kind::Linux("xfs") => {
                let image = fresh_image(mib)?;
                Cmd::new("mkfs.xfs")
                    .args(["-q", "-f"])
                    .arg(image.path())
                    .ok()?;
                let mount = Mount::by_linux("xfs", image.path(), "")?;
                Box::new(host(mount, image, false))
            }
            Kind::Linux(kind) => {
                let image = fresh_image(mib)?;
                let mount = Mount::by_linux(kind, image.path(), "")?;
                Box::new(host(mount, image, true))
            }
            Kind::Fuse2fs => {
                let image = fresh_image(mib)?;
                let mount = extant_testkit::Subject::Fuse2fs.mount(image.path(), "")?;
                Box::new(host(mount, image, true))
            }
            Kind::Passthrough => {
                let below = TempDir::new("source")?;
                let mount = Mount::passthrough(below.path(), PASSTHROUGH)?;
                Box::new(Host {
                    mount,
                    image: None,
                    below: Some(below),
                    extant: false,
                    ext4: false,
                })
            }
        })
    }
}

/// An image as mke2fs makes large ones: left alone it takes blocks of 1 KiB at this size.
fn fresh_image(mib: u64, setup: Setup) -> Result<Image> {
    let args = match setup {
        Setup::Names => "-b 4096 -N 400000",
        _ => "-b 4096",
    };
    Image::of_mib(mib).args(args).make()
}

fn kernel_knows(kind: &str) -> bool {
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    known
        .lines()
        .any(|l| l.split_whitespace().last() == Some(kind))
}
