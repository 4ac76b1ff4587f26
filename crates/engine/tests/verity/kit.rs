//! Volumes with fs-verity, files on them, and the digest from its definition.

use extant_engine::{Cred, Node, Result, SetAttr, TreeHash, VerityParams, Volume, VolumeOptions};
use extant_testkit::{Image, content};
use sha2::{Digest, Sha256, Sha512};

/// `FS_VERITY_FL`.
pub(crate) const VERITY: u32 = 0x10_0000;

pub(crate) fn image(mib: u64, args: &str) -> Image {
    let image = Image::of_mib(mib).args("-O verity").args(args);
    image.make().unwrap()
}

pub(crate) fn open(image: &Image, options: &str) -> Volume {
    let mut how = VolumeOptions::new();
    how.write(true).mount_options(options);
    how.open(image.path()).unwrap()
}

pub(crate) fn create(volume: &Volume, name: &str, data: &[u8]) -> Node {
    let (root, cred) = (volume.root().unwrap(), Cred::root());
    let node = volume.create(&root, name.as_bytes(), 0o644, &cred).unwrap();
    // Holes stay holes.
    for (at, piece) in (0..).step_by(4096).zip(data.chunks(4096)) {
        if piece.iter().any(|&byte| byte != 0) {
            assert_eq!(volume.write(&node, at, piece, &cred).unwrap(), piece.len());
        }
    }
    set_size(volume, &node, data.len() as u64).unwrap();
    node
}

pub(crate) fn find(volume: &Volume, name: &str) -> Node {
    let root = volume.root().unwrap();
    volume.lookup(&root, name.as_bytes()).unwrap()
}

pub(crate) fn set_size(volume: &Volume, node: &Node, size: u64) -> Result<()> {
    let to = SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    volume.setattr(node, &to, &Cred::root()).map(drop)
}

pub(crate) fn read(volume: &Volume, node: &Node) -> Result<Vec<u8>> {
    let size = volume.getattr(node)?.size;
    let mut bytes = vec![0; usize::try_from(size).unwrap()];
    let mut done = 0;
    while done < bytes.len() {
        done += volume.read(node, done as u64, &mut bytes[done..])?;
    }
    Ok(bytes)
}

pub(crate) fn seal(volume: &Volume, node: &Node, params: &VerityParams) -> Result<()> {
    volume.enable_verity(node, params, &Cred::root())
}

pub(crate) fn params(hash: TreeHash, block_size: u32, salt: &[u8]) -> VerityParams {
    VerityParams {
        hash,
        block_size,
        salt: salt.to_vec(),
        signature: Vec::new(),
    }
}

pub(crate) fn hash(with: TreeHash, salt: &[u8], bytes: &[u8]) -> Vec<u8> {
    let mut salt = salt.to_vec();
    salt.resize(salt.len().next_multiple_of(with.input_bytes()), 0);
    let bytes = [&salt, bytes].concat();
    match with {
        TreeHash::Sha256 => Sha256::digest(bytes).to_vec(),
        TreeHash::Sha512 => Sha512::digest(bytes).to_vec(),
    }
}

/// The digest of a file, from its definition: the hash of the descriptor with the root of the tree.
pub(crate) fn digest(data: &[u8], params: &VerityParams) -> Vec<u8> {
    let block = params.block_size as usize;
    let mut level = data.to_vec();
    level.resize(data.len().next_multiple_of(block), 0);
    while level.len() > block {
        let hashes = level.chunks(block);
        level = hashes
            .flat_map(|block| hash(params.hash, &params.salt, block))
            .collect();
        level.resize(level.len().next_multiple_of(block), 0);
    }
    let root = match level.is_empty() {
        true => Vec::new(),
        false => hash(params.hash, &params.salt, &level),
    };
    let mut descriptor = [0; 256];
    descriptor[0] = 1;
    descriptor[1] = params.hash.number();
    descriptor[2] = u8::try_from(params.block_size.ilog2()).unwrap();
    descriptor[3] = u8::try_from(params.salt.len()).unwrap();
    descriptor[8..16].copy_from_slice(&(data.len() as u64).to_le_bytes());
    descriptor[16..16 + root.len()].copy_from_slice(&root);
    descriptor[80..80 + params.salt.len()].copy_from_slice(&params.salt);
    hash(params.hash, &[], &descriptor)
}

/// `len` bytes, with a hole.
pub(crate) fn data(len: usize) -> Vec<u8> {
    let mut data = content::fill(len as u64 + 1, 0, len);
    if let Some(hole) = data.get_mut(65536..300_000) {
        hole.fill(0);
    }
    data
}

pub(crate) fn free(volume: &Volume) -> u64 {
    volume.statfs().unwrap().blocks_free
}

pub(crate) fn blocks(volume: &Volume, node: &Node) -> u64 {
    volume.getattr(node).unwrap().blocks
}
