//! A volume as both programs are asked for it.

use std::fmt;
use std::fs::File;
use std::path::Path;

use extant_mkfs::{Options, make, parse_features, parse_quota_kinds};
use extant_testkit::{Cmd, Result};

const UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";
const UUID_BYTES: [u8; 16] = [
    0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff,
];
const SEED: &str = "2a2a2a2a-2a2a-2a2a-2a2a-2a2a2a2a2a2a";
const SEED_BYTES: [u8; 16] = [0x2A; 16];
const TIME: u64 = 1_700_000_000;

/// Size and arguments of mke2fs.
pub(crate) struct Case {
    pub(crate) size: u64,
    pub(crate) args: String,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes, {:?}", self.size, self.args)
    }
}

impl Case {
    pub(crate) fn new(size: u64, args: &str) -> Case {
        Case {
            size,
            args: args.to_owned(),
        }
    }

    /// Bytes of a block, or zero where the size is left to mke2fs.
    pub(crate) fn block_size(&self) -> u32 {
        let mut words = self.args.split_whitespace();
        let value = words.find(|word| *word == "-b").and_then(|_| words.next());
        value.map_or(0, |size| size.parse().unwrap())
    }

    /// Has mke2fs make it at `path`; what it said where it refused.
    pub(crate) fn by_mke2fs(&self, path: &Path) -> Result<Option<String>> {
        File::create(path)?.set_len(self.size)?;
        let output = Cmd::new("mke2fs")
            .env("E2FSPROGS_FAKE_TIME", TIME.to_string())
            .args(["-q", "-F", "-t", "ext4", "-U", UUID])
            .args(self.args_of_mke2fs())
            .arg(path)
            .run()?;
        // It goes on without the journal that was asked for; Extant does not.
        let no_journal = self.args.contains("-J") && output.err.contains("too small for a journal");
        Ok((output.code != Some(0) || no_journal).then_some(output.err))
    }

    /// Only the last `-E` counts there.
    fn args_of_mke2fs(&self) -> Vec<String> {
        let words = self.args.split_whitespace();
        let mut words: Vec<String> = words.map(str::to_owned).collect();
        match words.iter().position(|word| word == "-E") {
            Some(at) => words[at + 1] += &format!(",hash_seed={SEED}"),
            None => words.extend(["-E".to_owned(), format!("hash_seed={SEED}")]),
        }
        words
    }

    /// Has Extant make it at `path`.
    pub(crate) fn by_extant(&self, path: &Path) -> extant_mkfs::Result<()> {
        let options = self.options()?;
        make(path, Some(self.size), &options)?;
        Ok(())
    }

    pub(crate) fn options(&self) -> extant_mkfs::Result<Options> {
        let mut options = Options {
            uuid: Some(UUID_BYTES),
            hash_seed: Some(SEED_BYTES),
            time: Some(TIME),
            ..Options::default()
        };
        let words: Vec<&str> = self.args.split_whitespace().collect();
        let (pairs, rest) = words.as_chunks::<2>();
        assert!(rest.is_empty(), "options come with a value");
        for [option, value] in pairs {
            match *option {
                "-b" => options.block_size = value.parse().ok(),
                "-C" => options.cluster_size = value.parse().ok(),
                "-I" => options.inode_size = value.parse().ok(),
                "-i" => options.bytes_per_inode = value.parse().ok(),
                "-N" => options.inodes = value.parse().ok(),
                "-m" => options.reserved_percent = value.parse().ok(),
                "-L" => options.label = value.as_bytes().to_vec(),
                "-J" => value.split(',').for_each(|word| extend(&mut options, word)),
                "-O" => options.features = parse_features(value)?,
                "-E" => value.split(',').for_each(|word| extend(&mut options, word)),
                other => panic!("{other} is no option of these tests"),
            }
        }
        Ok(options)
    }
}

fn extend(options: &mut Options, word: &str) {
    let (key, value) = word.split_once('=').unwrap();
    let number = |text: &str| text.parse().unwrap();
    match key {
        "size" => options.journal_mib = Some(number(value)),
        "fast_commit_size" => options.fast_commit_kib = Some(number(value)),
        "stride" => options.stride = number(value),
        "stripe_width" => options.stripe_width = number(value),
        "lazy_itable_init" => options.lazy_itable_init = Some(value == "1"),
        "encoding" => options.features.extend(parse_features("casefold").unwrap()),
        "encoding_flags" => options.strict_names = value == "strict",
        "quotatype" => options.quotas = parse_quota_kinds(value).unwrap(),
        "root_owner" => {
            let (uid, gid) = value.split_once(':').unwrap();
            options.root_owner = (number(uid), number(gid));
        }
        other => panic!("{other} is no word of these tests"),
    }
}
