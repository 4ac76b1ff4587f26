//! Volumes with an encrypted directory.

use extant_engine::{
    ContentsMode, Cred, EncryptionPolicy, Error, Ivs, KeyId, NamesMode, Node, Padding, RenameFlags,
    Volume, VolumeOptions,
};
use extant_testkit::Image;

/// A master key, of the longest kind.
pub(crate) const KEY: [u8; 64] =
    *b"a key of sixty-four bytes, which no one else would ever choose!!";
/// Its name in policies of the first version.
pub(crate) const DESCRIPTOR: [u8; 8] = *b"\x01descrip";
/// The name of the encrypted directory.
pub(crate) const SECRET: &[u8] = b"secret";

/// A policy of each pair of modes, and of each way to number data units.
pub(crate) fn policies(id: KeyId) -> Vec<EncryptionPolicy> {
    let policy = |contents, names, padding, ivs| EncryptionPolicy {
        contents,
        names,
        padding,
        key: id,
        ivs,
        log2_data_unit: 0,
    };
    use ContentsMode::{Adiantum, Aes128CbcEssiv, Aes256Xts};
    let mut all = vec![
        policy(
            Aes256Xts,
            NamesMode::Aes256Cts,
            Padding::Four,
            Ivs::PerFileKey,
        ),
        policy(
            Adiantum,
            NamesMode::Adiantum,
            Padding::Eight,
            Ivs::PerFileKey,
        ),
        policy(
            Adiantum,
            NamesMode::Adiantum,
            Padding::ThirtyTwo,
            Ivs::DirectKey,
        ),
        policy(
            Aes128CbcEssiv,
            NamesMode::Aes128Cts,
            Padding::Sixteen,
            Ivs::PerFileKey,
        ),
    ];
    if let KeyId::Identifier(_) = id {
        all.extend([
            policy(
                Aes256Xts,
                NamesMode::Aes256Hctr2,
                Padding::ThirtyTwo,
                Ivs::PerFileKey,
            ),
            policy(
                Aes256Xts,
                NamesMode::Aes256Cts,
                Padding::Sixteen,
                Ivs::InoLblk64,
            ),
            policy(
                Aes256Xts,
                NamesMode::Aes256Cts,
                Padding::Four,
                Ivs::InoLblk32,
            ),
        ]);
        let units = policy(
            Aes256Xts,
            NamesMode::Aes256Cts,
            Padding::Four,
            Ivs::PerFileKey,
        );
        all.push(EncryptionPolicy {
            log2_data_unit: 9,
            ..units
        });
    }
    all
}

/// The usual policy.
pub(crate) fn usual(id: KeyId) -> EncryptionPolicy {
    policies(id)[0]
}

/// A volume with the feature, and with others.
pub(crate) fn image(args: &str) -> Image {
    let image = Image::of_mib(32)
        .args("-O encrypt,stable_inodes")
        .args(args);
    image.make().unwrap()
}

/// Mounts a volume without a key.
pub(crate) fn open(image: &Image) -> Volume {
    let mut options = VolumeOptions::new();
    options.write(true).open(image.path()).unwrap()
}

/// Mounts a volume and adds the key.
pub(crate) fn open_with_key(image: &Image) -> Volume {
    let volume = open(image);
    volume.add_key(&KEY).unwrap();
    volume.add_key_with_descriptor(DESCRIPTOR, &KEY).unwrap();
    volume
}

/// Makes the encrypted directory.
pub(crate) fn make_secret(volume: &Volume, policy: &EncryptionPolicy) -> Node {
    let root = volume.root().unwrap();
    let dir = volume.mkdir(&root, SECRET, 0o755, &Cred::root()).unwrap();
    volume
        .set_encryption_policy(&dir, policy, &Cred::root())
        .unwrap();
    dir
}

/// The encrypted directory.
pub(crate) fn secret(volume: &Volume) -> Node {
    volume.lookup(&volume.root().unwrap(), SECRET).unwrap()
}

/// Makes a file.
pub(crate) fn create(volume: &Volume, dir: &Node, name: &[u8], bytes: &[u8]) -> Node {
    let node = volume.create(dir, name, 0o644, &Cred::root()).unwrap();
    assert_eq!(
        volume.write(&node, 0, bytes, &Cred::root()).unwrap(),
        bytes.len()
    );
    node
}

/// All bytes of a file.
pub(crate) fn read(volume: &Volume, node: &Node) -> Vec<u8> {
    let size = volume.getattr(node).unwrap().size;
    let mut bytes = vec![0; usize::try_from(size).unwrap()];
    assert_eq!(volume.read(node, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// The names in a directory, sorted, without the dots.
pub(crate) fn list(volume: &Volume, dir: &Node) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    let each = &mut |entry: extant_engine::Dirent<'_>| {
        if !matches!(entry.name, b"." | b"..") {
            names.push(entry.name.to_vec());
        }
        true
    };
    volume.readdir(dir, 0, each).unwrap();
    names.sort();
    names
}

/// Renames; both names by directory and name.
pub(crate) fn rename(
    volume: &Volume,
    (from, old): (&Node, &[u8]),
    (to, new): (&Node, &[u8]),
) -> Result<(), Error> {
    volume.rename(from, old, to, new, RenameFlags::empty(), &Cred::root())
}

/// Exchanges two names.
pub(crate) fn exchange(
    volume: &Volume,
    (a, old): (&Node, &[u8]),
    (b, new): (&Node, &[u8]),
) -> Result<(), Error> {
    volume.rename(a, old, b, new, RenameFlags::EXCHANGE, &Cred::root())
}
