use super::*;
use std::process::Command;

const SEED: [u32; 4] = [0x0403_0201, 0x0807_0605, 0x0c0b_0a09, 0x100f_0e0d];
const SEED_UUID: &str = "01020304-0506-0708-090a-0b0c0d0e0f10";

fn names() -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = (1..=255_u8)
        .step_by(7)
        .map(|len| (0..len).map(|i| b'a' + (i ^ len) % 26).collect())
        .collect();
    names.push("dépôt-ÿ-名前.txt".into());
    names.push(vec![0xff; 33]);
    names.push([&[b'x'; 31][..], &[0x80, 0xc3, 0xfe]].concat());
    names
}

/// Asks debugfs; its answer reads "Hash of NAME is 0x.. (minor 0x..)".
fn debugfs(version: u8, seed: Option<&str>, name: &[u8]) -> DirHash {
    use std::os::unix::ffi::OsStrExt as _;
    let algorithm = [
        "legacy",
        "half_md4",
        "tea",
        "legacy_unsigned",
        "half_md4_unsigned",
        "tea_unsigned",
    ][usize::from(version)];
    let mut request = format!("dx_hash -h {version} ").into_bytes();
    if let Some(seed) = seed {
        request.extend_from_slice(format!("-s {seed} ").as_bytes());
    }
    request.extend_from_slice(name);
    let out = Command::new("debugfs")
        .arg("-R")
        .arg(std::ffi::OsStr::from_bytes(&request))
        .output()
        .expect("debugfs runs");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let hex = |after: &str| {
        let start = text
            .rfind(after)
            .unwrap_or_else(|| panic!("{algorithm}: {text}"))
            + after.len();
        let digits: String = text[start..]
            .chars()
            .take_while(char::is_ascii_hexdigit)
            .collect();
        u32::from_str_radix(&digits, 16).expect("hex")
    };
    DirHash {
        major: hex(" is 0x"),
        minor: hex("(minor 0x"),
    }
}

#[test]
fn equal_to_debugfs() {
    for version in 0..=5 {
        for (seed, uuid) in [([0; 4], None), (SEED, Some(SEED_UUID))] {
            let hasher = DirHasher::new(version, false, seed).unwrap();
            for name in names() {
                assert_eq!(
                    hasher.hash(&name),
                    debugfs(version, uuid, &name),
                    "version {version} seed {uuid:?} name {:?}",
                    String::from_utf8_lossy(&name)
                );
            }
        }
    }
}

#[test]
fn the_superblock_flag_makes_a_version_unsigned() {
    for version in 0..3 {
        let by_flag = DirHasher::new(version, true, SEED).unwrap();
        assert_eq!(by_flag, DirHasher::new(version + 3, false, SEED).unwrap());
        let signed = DirHasher::new(version, false, SEED).unwrap();
        assert_ne!(by_flag.hash(b"\xff\xfe\xfd"), signed.hash(b"\xff\xfe\xfd"));
        assert_eq!(by_flag.hash(b"ascii"), signed.hash(b"ascii"));
    }
}

#[test]
fn unknown_versions_are_refused() {
    assert_eq!(DirHasher::new(6, false, SEED), Err(HashError::SipHash));
    assert_eq!(DirHasher::new(7, false, SEED), Err(HashError::Unknown(7)));
}
