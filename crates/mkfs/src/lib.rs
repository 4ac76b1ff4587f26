//! Making an ext4 file system.
//!
//! # Responsibility
//! An image is made in two steps. [`Layout::plan`] computes where everything lies, from [`Options`]
//! and the device's length alone: no device is read or written, so a layout can be printed and
//! tested without one. [`write`](write()) then streams the layout to a device, with the names and
//! times of an [`Identity`].
//!
//! A layout is that of mke2fs 1.47 on the same arguments, block for block:
//!
//! ```text
//! group 0            superblock | descriptors | reserved descriptors |
//!   (flex group 0)     block bitmaps | inode bitmaps | inode tables of 16 groups |
//!                      root directory | lost+found | resize inode's map | data
//! groups 1, 3, 5,    backup superblock | backup descriptors | reserved | data
//!   7, 9, 25, 27 ...
//! group 16           the next flex group's bitmaps and tables | data
//! middle group       journal | data
//! ```
//!
//! The modules in the order of the plan: `features` and `profile` (what the options ask for),
//! `clusters` and `geometry` (sizes and counts), `space` (what is taken), `tables` (bitmaps and
//! inode tables), `files` (the directories, the journal and the hidden inodes), `quotas` (the files
//! of quotas), `layout` (all of it). Then `superblock`, `inodes`, `maps` and `write` turn it into
//! bytes. `signature` knows what an overwritten device may hold, `target` opens files and devices.
//! `population` is what a caller puts on a volume before it is written ([`Layout::populate`],
//! [`write_populated`]).
//!
//! # Invariants
//! - Nothing is written before the plan stands and the device was found to hold nothing of value.
//! - The old superblock is wiped first, the new one written last, each with a flush between: a
//!   device that lost power on the way holds no file system rather than half of one.
//! - The same options, length and identity give the same bytes.
//!
//! # Example
//! ```
//! use extant_blockdev::MemoryDevice;
//! use extant_mkfs::{Identity, Layout, Options};
//!
//! let device = MemoryDevice::new(16 << 20);
//! let options = Options::default();
//! let layout = Layout::plan(&options, 16 << 20)?;
//! extant_mkfs::write(&device, &layout, &Identity::of(&options)?)?;
//! # Ok::<(), extant_mkfs::Error>(())
//! ```
#![forbid(unsafe_code)]

mod clusters;
mod error;
mod external_journal;
mod features;
mod file_map;
mod files;
mod geometry;
mod identity;
mod inodes;
mod journal_device;
mod layout;
mod maps;
mod options;
mod population;
mod profile;
mod quota_kinds;
mod quotas;
mod signature;
mod space;
mod superblock;
mod tables;
mod target;
mod write;

pub use error::{Error, Result};
pub use extant_disk::geometry::Geometry;
pub use external_journal::ExternalJournal;
pub use features::{FeatureEdit, parse_features};
pub use identity::Identity;
pub use journal_device::JournalPlan;
pub use layout::Layout;
pub use options::Options;
pub use population::{Formats, Population};
pub use profile::Usage;
pub use quota_kinds::{QuotaKinds, parse_quota_kinds};
pub use signature::{Signature, find_other_format, find_signatures};
pub use target::{
    Made, MadeJournal, make, make_journal, make_journal_on, make_on, plan, plan_journal,
    plan_journal_on, plan_on, refuse_occupied_file, take_device,
};
pub use write::{Before, write, write_populated};
