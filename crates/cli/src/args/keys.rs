//! The command about keys of encrypted files.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use extant::{ContentsMode, EncryptionPolicy, Ivs, KeyId, NamesMode, Padding};

use crate::operand::Operand;

/// Add and remove keys of encrypted files, and encrypt directories
///
/// Files are encrypted as by Linux (fscrypt): a directory has a policy, which all that is made in
/// it inherits, and the policy names a master key of 16 to 64 bytes. The volume needs the feature
/// encrypt (mkfs -O encrypt, tune2fs -O encrypt). Keys are added to mounts by this command, and to
/// the images of any other command by its option --key. Without the key names are shown as Linux
/// shows them, and can be removed; nothing is read.
#[derive(Args, Debug)]
pub(crate) struct Key {
    #[command(subcommand)]
    pub(crate) action: KeyAction,
}

#[derive(Subcommand, Debug)]
pub(crate) enum KeyAction {
    Add(KeyAdd),
    Remove(KeyOfMount),
    Status(KeyOfMount),
    Encrypt(KeyEncrypt),
    Policy(KeyPolicy),
}

/// Add a master key to a mount
///
/// Prints the name that policies call it by: its identifier, which is computed from it.
#[derive(Args, Debug)]
pub(crate) struct KeyAdd {
    /// The descriptor of the key, 16 hexadecimal digits, for policies of version 1. Nothing tells
    /// whether it is the right key
    #[arg(long, value_name = "HEX", value_parser = descriptor)]
    pub(crate) descriptor: Option<[u8; 8]>,
    /// The mount, or any directory in it
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// The file with the key's bytes; - is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

/// Remove a master key from a mount; show its state
///
/// Dirty data is written first. Files that are open can be used until they are closed: the state
/// is partly removed as long as there is one, and remove can be run again.
#[derive(Args, Debug)]
pub(crate) struct KeyOfMount {
    /// Output for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// The mount, or any directory in it
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// The key's identifier (32 hexadecimal digits) or descriptor (16)
    #[arg(value_name = "KEY", value_parser = key)]
    pub(crate) key: KeyId,
}

/// Encrypt empty directories, and all that will be made in them
#[derive(Args, Debug)]
pub(crate) struct KeyEncrypt {
    /// The cipher of data: aes-256-xts, aes-128-cbc or adiantum
    #[arg(long, value_name = "CIPHER", default_value = "aes-256-xts", value_parser = contents)]
    pub(crate) contents: ContentsMode,
    /// The cipher of names: aes-256-cts, aes-256-hctr2, aes-128-cts or adiantum. That which goes
    /// with the data's if it is not given
    #[arg(long, value_name = "CIPHER", value_parser = names)]
    pub(crate) names: Option<NamesMode>,
    /// Bytes to whose multiple a name is filled up: 4, 8, 16 or 32
    #[arg(long, value_name = "BYTES", default_value = "32", value_parser = padding)]
    pub(crate) padding: Padding,
    /// The keys of files: per-file; direct (one key for all, by adiantum); inode-64 or inode-32
    /// (one key for a volume with stable_inodes, for storage that encrypts)
    #[arg(long, value_name = "HOW", default_value = "per-file", value_parser = ivs)]
    pub(crate) keys: Ivs,
    /// The master key: its identifier, or its descriptor for a policy of version 1. That of --key
    /// if it is not given
    #[arg(long, value_name = "KEY", value_parser = key)]
    pub(crate) key_id: Option<KeyId>,
    /// The directories
    #[arg(required = true, value_name = "IMAGE:/PATH|DIR")]
    pub(crate) paths: Vec<Operand>,
}

/// Show what files and directories are encrypted by
#[derive(Args, Debug)]
pub(crate) struct KeyPolicy {
    /// Output for programs
    #[arg(long)]
    pub(crate) json: bool,
    /// The files and directories
    #[arg(required = true, value_name = "IMAGE:/PATH|FILE")]
    pub(crate) paths: Vec<Operand>,
}

const CONTENTS: [(&str, ContentsMode, NamesMode); 3] = [
    ("aes-256-xts", ContentsMode::Aes256Xts, NamesMode::Aes256Cts),
    (
        "aes-128-cbc",
        ContentsMode::Aes128CbcEssiv,
        NamesMode::Aes128Cts,
    ),
    ("adiantum", ContentsMode::Adiantum, NamesMode::Adiantum),
];
const NAMES: [(&str, NamesMode); 4] = [
    ("aes-256-cts", NamesMode::Aes256Cts),
    ("aes-256-hctr2", NamesMode::Aes256Hctr2),
    ("aes-128-cts", NamesMode::Aes128Cts),
    ("adiantum", NamesMode::Adiantum),
];
const IVS: [(&str, Ivs); 4] = [
    ("per-file", Ivs::PerFileKey),
    ("direct", Ivs::DirectKey),
    ("inode-64", Ivs::InoLblk64),
    ("inode-32", Ivs::InoLblk32),
];

impl KeyEncrypt {
    /// The policy that is asked for, by the master key `id`.
    pub(crate) fn policy(&self, id: KeyId) -> EncryptionPolicy {
        let usual = CONTENTS
            .iter()
            .find(|(_, contents, _)| *contents == self.contents);
        let usual = usual.map_or(NamesMode::Aes256Cts, |(_, _, names)| *names);
        EncryptionPolicy {
            contents: self.contents,
            names: self.names.unwrap_or(usual),
            padding: self.padding,
            ivs: self.keys,
            ..EncryptionPolicy::usual(id)
        }
    }
}

/// The names of a policy's parts: data, names, keys of files.
pub(crate) fn names_of(policy: &EncryptionPolicy) -> [&'static str; 3] {
    let contents = CONTENTS
        .iter()
        .find(|(_, mode, _)| *mode == policy.contents);
    let names = NAMES.iter().find(|(_, mode)| *mode == policy.names);
    let ivs = IVS.iter().find(|(_, ivs)| *ivs == policy.ivs);
    [
        contents.map_or("?", |(name, _, _)| *name),
        names.map_or("?", |(name, _)| *name),
        ivs.map_or("?", |(name, _)| *name),
    ]
}

fn contents(text: &str) -> Result<ContentsMode, String> {
    let found = CONTENTS.iter().find(|(name, _, _)| *name == text);
    let known = CONTENTS.map(|(name, _, _)| name);
    found
        .map(|(_, mode, _)| *mode)
        .ok_or_else(|| one_of(&known))
}

fn names(text: &str) -> Result<NamesMode, String> {
    let found = NAMES.iter().find(|(name, _)| *name == text);
    found
        .map(|(_, mode)| *mode)
        .ok_or_else(|| one_of(&NAMES.map(|(name, _)| name)))
}

fn ivs(text: &str) -> Result<Ivs, String> {
    let found = IVS.iter().find(|(name, _)| *name == text);
    found
        .map(|(_, ivs)| *ivs)
        .ok_or_else(|| one_of(&IVS.map(|(name, _)| name)))
}

fn one_of(known: &[&str]) -> String {
    format!("it is one of {}", known.join(", "))
}

fn padding(text: &str) -> Result<Padding, String> {
    let bytes = text.parse().ok();
    let found = bytes.and_then(Padding::of_bytes);
    found.ok_or_else(|| "it is 4, 8, 16 or 32".to_owned())
}

fn key(text: &str) -> Result<KeyId, String> {
    text.parse()
        .map_err(|_| "it is 16 or 32 hexadecimal digits".to_owned())
}

fn descriptor(text: &str) -> Result<[u8; 8], String> {
    match text.parse() {
        Ok(KeyId::Descriptor(descriptor)) => Ok(descriptor),
        _ => Err("it is 16 hexadecimal digits".to_owned()),
    }
}
