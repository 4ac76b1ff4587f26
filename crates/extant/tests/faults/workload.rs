//! The fixed workload, and the image that it starts from.

use std::collections::HashSet;
use std::sync::Arc;

use extant::{Cred, Options, Tuning};
use extant_testkit::Image;

use crate::stage::Stage;
use crate::world::{Known, World};

/// The symbolic link's target: too long for an inode.
pub(crate) const TARGET: &str =
    "a/target/that/is/too/long/for/an/inode/and/so/has/a/block/of/its/own/on/disk";
/// Files of the old indexed directory.
const MANY: usize = 45;

/// A kind of volume, and how it is mounted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) name: &'static str,
    pub(crate) mkfs: &'static str,
    pub(crate) mount: &'static str,
}

/// The operations on a volume.
pub(crate) type Workload = fn(&mut World);

/// The first is the one of the short round.
pub(crate) const SETUPS: &[Setup] = &[
    Setup {
        name: "usual",
        mkfs: "-b 1024 -O orphan_file",
        mount: "",
    },
    Setup {
        name: "per-block",
        mkfs: "-b 1024",
        mount: "nobuffered_iomap",
    },
    Setup {
        name: "large-blocks",
        mkfs: "-b 4096 -O ^orphan_file",
        mount: "",
    },
    Setup {
        name: "no-checksums",
        mkfs: "-b 1024 -O ^metadata_csum,^64bit",
        mount: "",
    },
    Setup {
        name: "at-once",
        mkfs: "-b 1024",
        mount: "nodelalloc,sync",
    },
    Setup {
        name: "ext3",
        mkfs: "-t ext3 -b 1024",
        mount: "",
    },
    Setup {
        name: "ext3-at-once",
        mkfs: "-t ext3 -b 1024",
        mount: "nodelalloc",
    },
    Setup {
        name: "blocks-of-8k",
        mkfs: "-b 8192 -O orphan_file",
        mount: "",
    },
    Setup {
        name: "blocks-of-64k",
        mkfs: "-b 65536",
        mount: "",
    },
];

impl Setup {
    /// Bytes of a block.
    pub(crate) fn block_size(&self) -> u64 {
        let words = self.mkfs.split_whitespace();
        words.filter_map(|word| word.parse().ok()).max().unwrap()
    }

    pub(crate) fn options(&self) -> Options {
        let mut options = Options::new();
        let mut tuning = Tuning::default();
        // All requests come from the workload.
        tuning.flushers = 0;
        tuning.page_cache_bytes = Some(32 << 20);
        // The timer of the journal makes no commit.
        let mount = format!("commit=3000,{}", self.mount);
        options.write(true).cred(Cred::root()).tuning(tuning);
        options.mount_options(mount.trim_end_matches(','));
        options
    }
}

/// An image with something in it.
pub(crate) struct Base {
    pub(crate) bytes: Vec<u8>,
    pub(crate) known: Known,
    pub(crate) block_size: u64,
    pub(crate) log_blocks: Arc<HashSet<u64>>,
}

impl Base {
    /// Files with one extent and with many, a directory with an index, a link and attributes in
    /// blocks.
    pub(crate) fn new(setup: &Setup) -> Self {
        // As small as its journal lets it be; larger blocks hold more each.
        let mib = 10 + (setup.block_size() >> 13);
        let image = Image::with_args(mib, setup.mkfs).junk().make().unwrap();
        let listed = image.debugfs("blocks <8>").unwrap();
        let log_blocks = listed.split_whitespace().map(|n| n.parse().unwrap());
        let log_blocks: Arc<HashSet<u64>> = Arc::new(log_blocks.collect());
        let block_size = image.block_size().unwrap();
        let empty = std::fs::read(image.path()).unwrap();
        let stage = Arc::new(Stage::new(&empty, block_size, log_blocks.clone(), None));
        let mut w = World::new(setup, stage.clone(), Known::default());
        w.mount();
        w.mkdir("/old");
        w.mkdir("/old/many");
        for number in 0..MANY {
            let name = format!("/old/many/{}-{number}", "name".repeat(12));
            w.open("x", &name);
            w.close("x");
        }
        w.open("x", "/old/big");
        let scale = w.scale();
        w.write("x", 0, scale * 70_000);
        w.open("x", "/old/small");
        w.write("x", 0, 3001);
        w.open("x", "/old/replaced");
        w.write("x", 0, 5000);
        w.open("x", "/old/frag");
        for part in 0..30 {
            w.write("x", scale * part * 8192, scale * 3008);
        }
        w.close("x");
        w.symlink(TARGET, "/old/link");
        w.set_attr("/old/small", "user.short", 10);
        w.set_attr("/old/small", "user.long", 700);
        w.unmount();
        let trouble = &w.referee.complaints;
        assert!(trouble.is_empty(), "{trouble:?}");
        Self {
            bytes: stage.memory.to_bytes(),
            known: w.known,
            block_size,
            log_blocks,
        }
    }

    /// The names of the old indexed directory.
    fn any_of_many(number: usize) -> String {
        format!("/old/many/{}-{number}", "name".repeat(12))
    }
}

/// The workload.
pub(crate) fn fixed(w: &mut World) {
    w.mount();
    read_cold(w);
    write_new_files(w);
    overwrite(w);
    change_names(w);
    cut_and_remove(w);
    // Left to the unmount.
    w.write("a", 36_000, 9000);
    w.open("last", "/last");
    w.write("last", 0, 7000);
    w.truncate("c", 100);
    w.unmount();
}

/// Reads data that is not in the cache.
fn read_cold(w: &mut World) {
    w.read("/old/small");
    w.read_link("/old/link", TARGET);
    w.list("/old/many", MANY);
    w.open("big", "/old/big");
    w.read("/old/frag");
}

/// Makes new files, one with two openers.
fn write_new_files(w: &mut World) {
    w.mkdir("/new");
    w.mkdir("/empty");
    w.open("a", "/new/a");
    w.open("a2", "/new/a");
    w.write("a", 0, 40_000);
    w.fsync("a");
    w.open("b", "/new/b");
    w.write("b", 0, 3000);
    w.open("c", "/new/c");
    w.write("c", 0, 9000);
    w.fsync("b");
    w.set_attr("/new/b", "user.key", 20);
    w.set_attr("/new/b", "user.block", 500);
    w.sync();
}

/// Writes over data in the cache and past its end, and over data whose edges have to be read.
fn overwrite(w: &mut World) {
    w.write("a2", 8000, 6000);
    w.fsync("a2");
    w.fsync("a");
    w.write("c", 9008, 5000);
    w.write("b", 3008, 100);
    w.fsync("c");
    w.fsync("b");
    w.write("big", 1040, 2000);
    w.write("big", 60_000, 20_000);
    w.fsync("big");
    w.read("/old/big");
}

/// Makes, renames and removes names.
fn change_names(w: &mut World) {
    for number in 0..24 {
        let name = format!("/new/{}-{number}", "long".repeat(14));
        w.open("n", &name);
    }
    w.close("n");
    w.open("t", "/new/t");
    w.write("t", 0, 4100);
    w.fsync("t");
    w.rename("/new/t", "/old/replaced");
    w.fsync("t");
    w.rename("/new/c", "/old/c");
    w.link("/old/c", "/new/c-again");
    w.symlink(TARGET, "/new/link");
    w.open("u", "/new/unsynced");
    w.write("u", 0, 2500);
    w.rename("/new/unsynced", "/old/small");
    w.fsync("u");
    w.unlink(&Base::any_of_many(7));
    w.unlink(&Base::any_of_many(8));
    w.rmdir("/empty");
    w.chmod("/new/a", 0o600);
    w.sync();
}

/// Cuts and extends files, and removes some that are open.
fn cut_and_remove(w: &mut World) {
    w.truncate("big", 33_333);
    w.fsync("big");
    w.truncate("big", 50_000);
    w.write("big", 48_000, 3008);
    w.fsync("big");
    w.open("frag", "/old/frag");
    w.truncate("frag", 4 * 8192 + 100);
    w.write("frag", 14 * 8192, 1504);
    w.unlink("/new/b");
    w.write("b", 0, 5000);
    w.fsync("b");
    w.close("b");
    w.remove_attr("/old/small", "user.long");
    w.set_attr("/new/a", "user.late", 900);
    w.fsync("frag");
    w.unlink("/old/frag");
    w.close("frag");
    w.sync();
}
