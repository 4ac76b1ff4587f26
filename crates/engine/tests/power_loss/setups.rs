//! Images that workloads run on, of several block sizes and feature sets, and how they are mounted.
//!
//! A later path or data mode joins by adding a line to [`SETUPS`].

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use extant_engine::{Cred, EncryptionPolicy, Error, Node, Tuning, Volume, VolumeOptions};
use extant_testkit::image::Maker;
use extant_testkit::{Image, LoopDevice, Need, encryption, need};

/// An image and how to mount it.
pub(crate) struct Setup {
    pub(crate) name: &'static str,
    /// Arguments of mke2fs.
    mkfs: &'static str,
    /// Bytes of a block that is larger than a page.
    large_blocks: Option<u64>,
    /// Bytes of a cluster, if space is allocated in those.
    pub(crate) cluster: Option<u64>,
    /// Bytes of a block, if the journal is on a device of its own.
    external: Option<u64>,
    /// Mount options.
    mount: &'static str,
    /// The largest folio, if not the default.
    max_folio_order: Option<u8>,
    /// The workload's handles are committed one by one: a crash shows the state between any two of
    /// an operation.
    pub(crate) commit_each_handle: bool,
    /// A size may be durable before the data below it, which then reads as zero.
    pub(crate) early_sizes: bool,
    /// A block may show what it held before, where no fsync has come since it was allocated.
    pub(crate) old_contents: bool,
}

const fn setup(name: &'static str, mkfs: &'static str) -> Setup {
    Setup {
        name,
        mkfs,
        large_blocks: None,
        cluster: None,
        external: None,
        mount: "",
        max_folio_order: None,
        commit_each_handle: false,
        early_sizes: false,
        old_contents: false,
    }
}

impl Setup {
    const fn large_blocks(self, bytes: u64) -> Self {
        Self {
            large_blocks: Some(bytes),
            ..self
        }
    }

    const fn clusters(self, bytes: u64) -> Self {
        Self {
            cluster: Some(bytes),
            ..self
        }
    }

    const fn external(self, block: u64) -> Self {
        Self {
            external: Some(block),
            ..self
        }
    }

    const fn mounted(self, mount: &'static str) -> Self {
        Self { mount, ..self }
    }

    const fn early_sizes(self) -> Self {
        Self {
            early_sizes: true,
            ..self
        }
    }

    const fn old_contents(self) -> Self {
        Self {
            old_contents: true,
            ..self
        }
    }

    const fn commit_each_handle(self) -> Self {
        Self {
            commit_each_handle: true,
            ..self
        }
    }

    const fn max_folio_order(self, order: u8) -> Self {
        Self {
            max_folio_order: Some(order),
            ..self
        }
    }
}

/// Usage of users, groups and projects is counted.
const COUNTED: &str = "-b 1024 -O quota,project -E quotatype=usrquota:grpquota:prjquota";

/// Everything that a workload may run on; a soak tries them all.
pub(crate) const SETUPS: &[Setup] = &[
    setup("1k", "-b 1024"),
    setup("2k", "-b 2048"),
    setup("4k", "-b 4096"),
    setup("tiny_journal", "-b 1024 -J size=1"),
    setup("orphan_list", "-b 1024 -O ^orphan_file"),
    setup("no_checksums", "-b 1024 -O ^metadata_csum,^64bit"),
    setup(
        "old_checksums",
        "-b 2048 -O ^metadata_csum,uninit_bg,^64bit -I 128",
    ),
    setup("many_groups", "-b 1024 -g 1024 -O ^resize_inode"),
    setup("meta_groups", "-b 1024 -g 256 -O meta_bg,^resize_inode"),
    setup("no_flex", "-b 1024 -g 2048 -O ^flex_bg"),
    setup("no_index", "-b 1024 -O ^dir_index"),
    setup("folded_names", "-b 1024 -O casefold"),
    setup("inside_inodes", "-b 1024 -I 512 -O inline_data"),
    setup("inside_4k", "-b 4096 -I 1024 -O inline_data,^orphan_file"),
    setup("inside_block_maps", "-b 1024 -O inline_data,^extent,^64bit").early_sizes(),
    setup("inside_journalled", "-b 1024 -O inline_data").mounted("data=journal"),
    setup("long_values", "-b 1024 -O ea_inode"),
    setup(
        "long_values_each_handle",
        "-b 1024 -I 128 -O ea_inode,^orphan_file",
    )
    .commit_each_handle(),
    setup("counted", COUNTED),
    setup("counted_each_handle", COUNTED)
        .mounted("usrquota")
        .commit_each_handle(),
    setup(
        "counted_inside",
        "-b 4096 -O quota,inline_data,ea_inode,^orphan_file",
    ),
    setup("clusters", "-b 1024").clusters(8192),
    setup("clusters_each_handle", "-b 1024 -O ^orphan_file")
        .clusters(4096)
        .commit_each_handle(),
    setup("clusters_counted", "-b 4096 -O quota,inline_data,ea_inode").clusters(65536),
    setup("sealed_1k", "-b 1024 -O verity"),
    setup(
        "sealed_each_handle",
        "-b 2048 -O verity,inline_data,^orphan_file",
    )
    .commit_each_handle(),
    setup("sealed_journalled", "-b 4096 -O verity").mounted("data=journal"),
    setup("encrypted", "-b 1024 -O encrypt").early_sizes(),
    setup(
        "encrypted_each_handle",
        "-b 4096 -O encrypt,inline_data,^orphan_file",
    )
    .early_sizes()
    .commit_each_handle(),
    setup("encrypted_ordered", "-b 1024 -O encrypt,verity")
        .mounted("dioread_lock,nodelalloc")
        .early_sizes(),
    setup("encrypted_folded", "-b 1024 -O encrypt,casefold").early_sizes(),
    setup("small_folios", "-b 2048").max_folio_order(0),
    setup("each_handle", "-b 1024").commit_each_handle(),
    setup("each_handle_ordered", "-b 1024")
        .mounted("nobuffered_iomap,dioread_lock,nodelalloc")
        .early_sizes()
        .commit_each_handle(),
    setup("discarding", "-b 1024").mounted("discard"),
    setup("data_writeback", "-b 1024").mounted("data=writeback"),
    setup("buffer_heads", "-b 1024")
        .mounted("nobuffered_iomap")
        .early_sizes(),
    setup("unordered", "-b 1024")
        .mounted("nobuffered_iomap,data=writeback,dioread_lock")
        .early_sizes()
        .old_contents(),
    setup("unordered_at_once", "-b 1024")
        .mounted("nobuffered_iomap,data=writeback,dioread_lock,nodelalloc")
        .early_sizes()
        .old_contents(),
    setup("journalled", "-b 1024").mounted("data=journal"),
    setup("journalled_4k", "-b 4096").mounted("data=journal"),
    setup("ordered", "-b 1024")
        .mounted("nobuffered_iomap,dioread_lock")
        .early_sizes(),
    setup("ordered_at_once", "-b 1024")
        .mounted("nobuffered_iomap,dioread_lock,nodelalloc")
        .early_sizes(),
    setup("ext3", "-t ext3 -b 1024").early_sizes(),
    setup("ext3_at_once", "-t ext3 -b 1024")
        .mounted("nodelalloc")
        .early_sizes(),
    setup("block_maps_4k", "-b 4096 -O ^extent,^64bit").early_sizes(),
    setup("ext3_unordered", "-t ext3 -b 1024")
        .mounted("data=writeback")
        .early_sizes()
        .old_contents(),
    setup("ext3_journalled", "-t ext3 -b 1024").mounted("data=journal"),
    setup(
        "fast_1k",
        "-b 1024 -O fast_commit -J size=2,fast_commit_size=64",
    ),
    setup(
        "fast_4k",
        "-b 4096 -O fast_commit -J size=4,fast_commit_size=256",
    ),
    setup(
        "fast_small_area",
        "-b 1024 -O fast_commit,^orphan_file -J size=1,fast_commit_size=8",
    ),
    setup("external", "-b 1024").external(1024),
    setup("external_4k", "-b 4096")
        .external(4096)
        .mounted("nobuffered_iomap,dioread_lock,nodelalloc")
        .early_sizes(),
    setup("external_each_handle", "-b 1024 -O ^metadata_csum")
        .external(1024)
        .commit_each_handle(),
    setup("external_journalled", "-b 2048 -O orphan_file")
        .external(2048)
        .mounted("data=journal"),
    setup("external_fast", "-b 1024 -O fast_commit").external(1024),
    setup("8k", "").large_blocks(8192),
    setup("16k_each_handle", "")
        .large_blocks(16384)
        .commit_each_handle(),
    setup("16k_buffer_heads", "")
        .large_blocks(16384)
        .mounted("nobuffered_iomap")
        .early_sizes(),
    setup("32k_journalled", "")
        .large_blocks(32768)
        .mounted("data=journal"),
    setup("32k_ordered", "-I 1024")
        .large_blocks(32768)
        .mounted("nobuffered_iomap,dioread_lock,nodelalloc")
        .early_sizes(),
    setup("64k", "").large_blocks(65536),
    setup("folded_8k", "-O casefold").large_blocks(8192),
    setup(
        "counted_16k",
        "-O quota,project -E quotatype=usrquota:grpquota:prjquota",
    )
    .large_blocks(16384),
    setup("sealed_16k", "-O verity").large_blocks(16384),
    setup("inside_64k", "-I 1024 -O inline_data,ea_inode").large_blocks(65536),
    setup("64k_block_maps", "-O ^extent,^64bit,^metadata_csum")
        .large_blocks(65536)
        .early_sizes(),
];

/// Mount options under which a power cut may cost what was promised, by the choice of the user: no
/// workload runs with these. A test shows that each does lose something, so that none is excluded
/// for comfort.
pub(crate) const EXCLUDED: &[&str] = &["nobarrier"];

/// The key of encrypted files, and the name of their directory.
const KEY: [u8; 64] = [0x5a; 64];
const ENCRYPTED: &str = "encrypted";

/// The size of the images.
const MIB: u64 = 12;

/// Blocks of the device of a journal: Linux wants 1024 besides those of the superblocks.
const JOURNAL_BLOCKS: u64 = 1040;

/// Blocks of the area of fast commits that a journal has by default.
const FAST_BLOCKS: u64 = 256;

impl Setup {
    pub(crate) fn named(name: &str) -> Option<&'static Setup> {
        SETUPS.iter().find(|setup| setup.name == name)
    }

    /// Returns whether this machine can make its image: mke2fs wants a block device for a journal
    /// beside the volume.
    pub(crate) fn is_possible(&self) -> bool {
        static LOOPS: OnceLock<bool> = OnceLock::new();
        self.external.is_none() || *LOOPS.get_or_init(|| need(&[Need::Root, Need::Loop]))
    }

    /// The bytes of the volume, of a recording that has the device of the journal behind it.
    pub(crate) fn border(&self) -> Option<u64> {
        self.external.map(|_| MIB << 20)
    }

    /// The bytes of a fresh image whose free space is junk, and behind it those of a journal of its
    /// own. Two images of a setup are alike, but for times and a journal's UUID.
    pub(crate) fn image(&self) -> Vec<u8> {
        let fixed = "-U 6c0a2b1e-53f4-4b0b-9d5a-0d3a0c1f7e11 -E nodiscard,lazy_itable_init=0,\
                     lazy_journal_init=0,hash_seed=1b9f3a5c-7d2e-4c68-8a41-5e0f9b3d6c27";
        let image = match self.large_blocks {
            None => Image::of_mib(MIB),
            // As much as is left of the others beside their journal.
            Some(bytes) => Image::beside_journal(bytes, MIB - 1),
        };
        let image = match self.cluster {
            None => image,
            Some(bytes) => image.args(&format!("-O bigalloc -C {bytes}")),
        };
        let image = image.args(self.mkfs).args(fixed).junk();
        if let Some(block) = self.external {
            return self.pair(image, block);
        }
        let image = image.make().unwrap();
        if self.mkfs.contains("casefold") {
            image.fold_root().unwrap();
        }
        if self.is_encrypted() {
            self.make_encrypted(&image);
        }
        std::fs::read(image.path()).unwrap()
    }

    /// The bytes of a volume and of its journal. The UUID of a journal is its own: e2fsck looks for
    /// a device with it, and another thread may have one.
    fn pair(&self, volume: Maker, block: u64) -> Vec<u8> {
        let blocks = match self.has_fast_commits() {
            false => JOURNAL_BLOCKS,
            true => JOURNAL_BLOCKS + FAST_BLOCKS,
        };
        let journal = Image::of_kib(blocks * (block >> 10));
        let journal = journal.args(&format!("-O journal_dev -b {block}"));
        let journal = journal.make().unwrap();
        let device = LoopDevice::over(journal.path(), 512).unwrap();
        let beside = format!("-J device={}", device.path().display());
        let volume = volume.args(&beside).make().unwrap();
        drop(device);
        let bytes = [volume, journal].map(|of| std::fs::read(of.path()).unwrap());
        bytes.concat()
    }

    /// Returns whether the workload's files are encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.mkfs.contains("encrypt")
    }

    /// Makes the directory that a workload has for its root where files are encrypted: the root
    /// itself is not empty.
    fn make_encrypted(&self, image: &Image) {
        let volume = VolumeOptions::new().write(true).open(image.path()).unwrap();
        let id = volume.add_key(&KEY).unwrap();
        let (root, cred) = (volume.root().unwrap(), Cred::root());
        let dir = volume
            .mkdir(&root, ENCRYPTED.as_bytes(), 0o755, &cred)
            .unwrap();
        let policy = EncryptionPolicy::usual(id);
        volume.set_encryption_policy(&dir, &policy, &cred).unwrap();
        drop((root, dir));
        volume.unmount().unwrap();
    }

    /// The directory that a workload has for its root.
    pub(crate) fn top(&self, volume: &Volume) -> Result<Node, Error> {
        let root = volume.root()?;
        if !self.is_encrypted() {
            return Ok(root);
        }
        volume.add_key(&KEY)?;
        volume.lookup(&root, ENCRYPTED.as_bytes())
    }

    /// The same in a mount by Linux.
    pub(crate) fn top_by_linux(&self, root: &Path) -> extant_testkit::Result<PathBuf> {
        if !self.is_encrypted() {
            return Ok(root.to_path_buf());
        }
        encryption::add_key(root, &KEY)?;
        Ok(root.join(ENCRYPTED))
    }

    /// Returns whether the kernel mounts such images: few have the tables that fold names, or know
    /// files of quotas and fs-verity, and blocks larger than a page are mounted from 6.19 on.
    pub(crate) fn is_for_linux(&self) -> bool {
        let folds = std::path::Path::new("/sys/fs/ext4/features/casefold").exists();
        let foreign = ["quota", "verity"]
            .iter()
            .any(|feature| self.mkfs.contains(feature));
        let foreign = foreign || self.large_blocks.is_some();
        !foreign && (folds || !self.mkfs.contains("casefold"))
    }

    /// Returns whether the mount writes fast commits. The check alone does not replay them. e2fsck
    /// 1.47 does not see what it replayed of the transactions before them, and leaves inodes
    /// without names.
    pub(crate) fn has_fast_commits(&self) -> bool {
        self.mkfs.contains("fast_commit")
    }

    /// Returns whether values of attributes may have inodes of their own.
    pub(crate) fn has_long_values(&self) -> bool {
        self.mkfs.contains("ea_inode")
    }

    /// Bytes that a cut of a file may zero: of its last block, or page.
    pub(crate) fn zeroed_unit(&self) -> u64 {
        self.large_blocks.unwrap_or(4096)
    }

    /// How to mount it.
    pub(crate) fn options(&self) -> VolumeOptions {
        let mut options = VolumeOptions::new();
        let how = options.write(true).mount_options(self.mount);
        how.tuning(self.tuning()).clone()
    }

    /// The switches of a mount.
    pub(crate) fn tuning(&self) -> Tuning {
        let mut tuning = Tuning::default();
        // The least that the cache allows: a mount must be cheap, since each state is one.
        tuning.page_cache_bytes = Some(32 << 20);
        if let Some(order) = self.max_folio_order {
            tuning.max_folio_order = order;
        }
        tuning
    }
}
