//! The command about files whose content is fixed.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use extant::{MAX_SALT, TreeHash};

use crate::operand::Operand;

/// Fix the content of files by fs-verity, and show their digests
///
/// A sealed file cannot be changed any more, only removed; its attributes and names can. What is
/// read of it is checked: bytes that were altered below the file system are I/O errors. The volume
/// needs the feature verity (mkfs -O verity, tune2fs -O verity). Files are those in images, and
/// those of mounts, which need Linux 6.10 for a salt, a signature and measure.
#[derive(Args, Debug)]
pub(crate) struct Verity {
    #[command(subcommand)]
    pub(crate) action: VerityAction,
}

#[derive(Subcommand, Debug)]
pub(crate) enum VerityAction {
    Enable(VerityEnable),
    Measure(VerityMeasure),
}

/// Seal files
///
/// No program may have them open for writing.
#[derive(Args, Debug)]
pub(crate) struct VerityEnable {
    /// The hash function: sha256 or sha512
    #[arg(long, value_name = "NAME", default_value = "sha256", value_parser = hash)]
    pub(crate) hash: TreeHash,
    /// Bytes of a block of the Merkle tree: 1024, 2048 or 4096, not more than the volume's blocks.
    /// The largest of these if it is not given
    #[arg(long, value_name = "BYTES", value_parser = block_size)]
    pub(crate) block_size: Option<u32>,
    /// A salt in hexadecimal digits, at most 32 bytes
    #[arg(long, value_name = "HEX", default_value = "", hide_default_value = true,
          value_parser = salt)]
    pub(crate) salt: Salt,
    /// A file with a signature of the digest, which is stored and not judged: Linux judges it when
    /// the file is opened there
    #[arg(long, value_name = "FILE")]
    pub(crate) signature: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) files: SealedFiles,
}

/// Show the digests of sealed files
///
/// A digest vouches for content, size and parameters, as far as it is known from a trusted source.
#[derive(Args, Debug)]
pub(crate) struct VerityMeasure {
    #[command(flatten)]
    pub(crate) files: SealedFiles,
}

#[derive(Args, Debug)]
pub(crate) struct SealedFiles {
    /// Output for programs: the digests
    #[arg(long)]
    pub(crate) json: bool,
    /// The files
    #[arg(required = true, value_name = "IMAGE:/PATH|FILE")]
    pub(crate) paths: Vec<Operand>,
}

/// Bytes of a salt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Salt(pub(crate) Vec<u8>);

fn hash(text: &str) -> Result<TreeHash, String> {
    let found = TreeHash::ALL.into_iter().find(|hash| hash.name() == text);
    found.ok_or_else(|| "it is sha256 or sha512".to_owned())
}

fn block_size(text: &str) -> Result<u32, String> {
    let bytes = text.parse().ok();
    let found = bytes.filter(|bytes| [1024, 2048, 4096].contains(bytes));
    found.ok_or_else(|| "it is 1024, 2048 or 4096".to_owned())
}

fn salt(text: &str) -> Result<Salt, String> {
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|d| u8::try_from(d).ok())
    };
    let pairs = text.as_bytes().chunks(2);
    let bytes: Option<Vec<u8>> = pairs
        .map(|pair| match *pair {
            [high, low] => Some(digit(high)? << 4 | digit(low)?),
            _ => None,
        })
        .collect();
    match bytes {
        None => Err("it is not a whole number of bytes in hexadecimal digits".to_owned()),
        Some(bytes) if bytes.len() > MAX_SALT => Err(format!("it has more than {MAX_SALT} bytes")),
        Some(bytes) => Ok(Salt(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn salts_are_bytes_in_hexadecimal() {
        assert_eq!(salt(""), Ok(Salt(vec![])));
        assert_eq!(salt("00fFa1"), Ok(Salt(vec![0, 255, 0xa1])));
        assert!(salt("0").is_err() && salt("0g").is_err() && salt("+1").is_err());
        assert!(salt("ä0").is_err());
        assert!(salt(&"00".repeat(32)).is_ok());
        assert!(salt(&"00".repeat(33)).is_err());
    }

    #[test]
    fn block_sizes_are_linux_s() {
        assert_eq!(block_size("2048"), Ok(2048));
        assert!(block_size("512").is_err() && block_size("8192").is_err());
        assert!(block_size("4k").is_err());
    }
}
