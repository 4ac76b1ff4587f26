//! A number of 128 bits for everything that a volume is built of, in whatever order it comes.
//!
//! Each name, with what it leads to, and each piece of data becomes a number; their sum is the
//! digest. A sum has no order, so threads add to it as they go. It tells inputs apart; it is no
//! seal against forgery.

use std::collections::HashMap;

use extant_disk::csum::Crc32c;
use extant_disk::file_kind::FileKind;

use crate::attrs::SetId;
use crate::tree::{Node, NodeId, Tree};

/// The first value of the hash (FNV-1a of 128 bits), and its multiplier.
const START: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const FACTOR: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

/// A hash that is fed bytes in order.
#[derive(Clone, Copy)]
struct Hash(u128);

impl Hash {
    fn feed(self, bytes: &[u8]) -> Self {
        let fed = bytes.iter().fold(self.0, |hash, &byte| {
            (hash ^ u128::from(byte)).wrapping_mul(FACTOR)
        });
        Self(fed)
    }

    fn number(self, value: u64) -> Self {
        self.feed(&value.to_le_bytes())
    }

    /// A number fit to be added up with others: each bit depends on all.
    fn mixed(self) -> u128 {
        let mut value = self.0;
        for shift in [65, 61, 63] {
            value = (value ^ (value >> shift)).wrapping_mul(FACTOR | START << 1);
        }
        value ^ (value >> 64)
    }
}

/// A sum of what was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Digest(u128);

impl Digest {
    /// Adds another sum.
    pub(crate) fn add(&mut self, other: Self) {
        self.0 = self.0.wrapping_add(other.0);
    }

    /// Adds a piece of a file's data.
    pub(crate) fn add_data(&mut self, ino: u32, at: u64, data: &[u8]) {
        let sum = Crc32c::START.feed(data).raw();
        let hash = Hash(START)
            .number(u64::from(ino))
            .number(at)
            .number(u64::from(sum));
        self.add(Self(hash.mixed()));
    }

    /// A UUID made of it: version 8, whose bits are its maker's. `purpose` tells several apart.
    pub(crate) fn uuid(self, purpose: &[u8]) -> [u8; 16] {
        let hash = Hash(START).feed(purpose).feed(&self.0.to_le_bytes());
        let mut uuid = hash.mixed().to_be_bytes();
        uuid[6] = uuid[6] & 0x0F | 0x80;
        uuid[8] = uuid[8] & 0x3F | 0x80;
        uuid
    }
}

/// The digest of all names and of what they lead to, contents left out.
pub(crate) fn of_tree(tree: &Tree) -> Digest {
    let mut sets = HashMap::new();
    let mut digest = Digest::default();
    let root = Hash(START);
    digest.add(Digest(
        described(tree, tree.node(NodeId::ROOT), root, &mut sets).mixed(),
    ));
    let mut dirs = vec![(NodeId::ROOT, root)];
    while let Some((dir, path)) = dirs.pop() {
        for name in tree.children(dir) {
            let id = tree.target(name);
            let node = tree.node(id);
            let path = path.feed(b"/").feed(tree.name_text(name));
            digest.add(Digest(described(tree, node, path, &mut sets).mixed()));
            if node.is_dir() {
                dirs.push((id, path));
            }
        }
    }
    digest
}

fn described(tree: &Tree, node: &Node, path: Hash, sets: &mut HashMap<SetId, u128>) -> Hash {
    let set = *sets.entry(node.attrs).or_insert_with(|| {
        let divided = tree.attrs.get(node.attrs);
        let all = divided.area.iter().chain(divided.block.iter());
        let hash = all.fold(Hash(START), |hash, (name, value)| {
            let hash = hash.feed(&[name.index.raw()]).feed(name.rest).feed(b"=");
            hash.feed(value).number(value.len() as u64)
        });
        hash.0
    });
    let ids = u64::from(node.uid) << 32 | u64::from(node.gid);
    let nanos = u64::from(node.mtime.nanos) << 32 | u64::from(node.atime.nanos);
    let links = if node.is_dir() { 0 } else { node.links };
    let hash = path
        .feed(&[0])
        .number(u64::from(node.mode))
        .number(ids)
        .number(node.mtime.secs.cast_unsigned())
        .number(node.atime.secs.cast_unsigned())
        .number(nanos)
        .number(u64::from(links))
        .feed(&set.to_le_bytes());
    match node.kind() {
        FileKind::Regular => hash.number(node.size),
        FileKind::Symlink => hash.feed(tree.link_target(node)),
        FileKind::CharDevice | FileKind::BlockDevice => hash.number(node.data),
        _ => hash,
    }
}
