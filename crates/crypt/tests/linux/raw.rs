//! The bytes of an image that Linux encrypted, read without the crates that are to read them.
//!
//! debugfs says where inodes and blocks are; inodes, the attribute in their spare room and linear
//! directories are read here.

use extant_crypt::Context;
use extant_testkit::Image;
use std::collections::BTreeMap;

/// Bytes of an inode.
const INODE: usize = 256;
/// The magic number of attributes inside of an inode.
const XATTR_MAGIC: u32 = 0xea02_0000;
/// The index of the attribute of a context.
const ENCRYPTION: u8 = 9;

/// An image, and the block size of its volume.
pub(crate) struct Raw<'a> {
    image: &'a Image,
    block: usize,
}

/// An encrypted inode.
pub(crate) struct Node {
    /// Its number.
    pub(crate) ino: u32,
    /// The value of the attribute.
    pub(crate) context: Context,
    /// Bytes of a file, or of a link's target.
    pub(crate) size: usize,
    /// The bytes of its blocks, or of a short target.
    pub(crate) data: Vec<u8>,
}

/// A name as it is stored.
pub(crate) struct Entry {
    /// The inode.
    pub(crate) ino: u32,
    /// The major and the minor hash behind the name, where there are any.
    pub(crate) hash: Option<(u32, u32)>,
}

fn half(bytes: &[u8], at: usize) -> usize {
    u16::from_le_bytes([bytes[at], bytes[at + 1]]).into()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

impl Raw<'_> {
    pub(crate) fn of(image: &Image) -> Raw<'_> {
        let block = image.block_size().unwrap().try_into().unwrap();
        Raw { image, block }
    }

    /// The UUID of the volume.
    pub(crate) fn uuid(&self) -> [u8; 16] {
        let bytes = self.image.bytes(1024 + 0x68, 16).unwrap();
        bytes.try_into().unwrap()
    }

    /// The inode of a path that has no encrypted name.
    pub(crate) fn ino(&self, path: &str) -> u32 {
        let said = self.image.debugfs(&format!("stat {path}")).unwrap();
        let number = said.split_whitespace().nth(1).unwrap();
        number.parse().unwrap()
    }

    fn inode(&self, ino: u32) -> Vec<u8> {
        let said = self.image.debugfs(&format!("imap <{ino}>")).unwrap();
        let (_, location) = said.split_once("located at block ").unwrap();
        let (block, offset) = location.trim().split_once(", offset 0x").unwrap();
        let block: u64 = block.parse().unwrap();
        let offset = u64::from_str_radix(offset, 16).unwrap();
        let at = block * self.block as u64 + offset;
        self.image.bytes(at, INODE).unwrap()
    }

    fn blocks(&self, ino: u32) -> Vec<u8> {
        let said = self.image.debugfs(&format!("blocks <{ino}>")).unwrap();
        let blocks = said.split_whitespace().map(|block| {
            let block: u64 = block.parse().unwrap();
            let bytes = self.image.bytes(block * self.block as u64, self.block);
            bytes.unwrap()
        });
        blocks.flatten().collect()
    }

    /// An inode with a context.
    pub(crate) fn node(&self, ino: u32) -> Node {
        let inode = self.inode(ino);
        let size = word(&inode, 4) as usize;
        let context = Context::parse(&context_of(&inode)).unwrap();
        let mode = half(&inode, 0);
        let blocks = word(&inode, 0x1c);
        let data = match (mode & 0xf000, blocks) {
            (0xa000, 0) => inode[0x28..0x28 + size].to_vec(),
            _ => self.blocks(ino),
        };
        Node {
            ino,
            context,
            size,
            data,
        }
    }

    /// The names in a linear directory, but for `.` and `..`.
    pub(crate) fn entries(&self, node: &Node) -> BTreeMap<Vec<u8>, Entry> {
        let mut all = BTreeMap::new();
        for block in node.data.chunks(self.block) {
            let mut at = 0;
            while at + 12 <= block.len() {
                let (ino, record) = (word(block, at), half(block, at + 4));
                let name = &block[at + 8..at + 8 + usize::from(block[at + 6])];
                let end = at + 8 + name.len().next_multiple_of(4);
                let has_hash = end + 8 <= at + record && end + 8 <= block.len();
                let hash = has_hash.then(|| (word(block, end), word(block, end + 4)));
                if ino != 0 && !matches!(name, b"." | b"..") {
                    all.insert(name.to_vec(), Entry { ino, hash });
                }
                at += record;
            }
        }
        all
    }
}

/// The value of the attribute with the context.
fn context_of(inode: &[u8]) -> Vec<u8> {
    let start = 128 + half(inode, 0x80);
    assert_eq!(word(inode, start), XATTR_MAGIC, "attributes in the inode");
    let first = start + 4;
    let mut at = first;
    while word(inode, at) != 0 {
        let (length, index) = (usize::from(inode[at]), inode[at + 1]);
        if index == ENCRYPTION && &inode[at + 16..at + 16 + length] == b"c" {
            let value = first + half(inode, at + 2);
            let size = word(inode, at + 8) as usize;
            return inode[value..value + size].to_vec();
        }
        at += (16 + length).next_multiple_of(4);
    }
    panic!("no context");
}
