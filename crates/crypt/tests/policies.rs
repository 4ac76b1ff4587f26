//! Contexts and policies: which are allowed, and what stands in them.

use extant_crypt::{
    BadContext, BadKey, BadPolicy, ContentsMode, Context, Ivs, KeyId, MasterKey, NamesMode,
    Padding, Policy,
};

const CONTENTS: [ContentsMode; 3] = [
    ContentsMode::Aes256Xts,
    ContentsMode::Aes128CbcEssiv,
    ContentsMode::Adiantum,
];
const NAMES: [NamesMode; 4] = [
    NamesMode::Aes256Cts,
    NamesMode::Aes128Cts,
    NamesMode::Adiantum,
    NamesMode::Aes256Hctr2,
];
const IVS: [Ivs; 4] = [
    Ivs::PerFileKey,
    Ivs::DirectKey,
    Ivs::InoLblk64,
    Ivs::InoLblk32,
];
const KEYS: [KeyId; 2] = [KeyId::Descriptor([1; 8]), KeyId::Identifier([2; 16])];

fn policy(contents: ContentsMode, names: NamesMode, ivs: Ivs, key: KeyId) -> Policy {
    Policy {
        contents,
        names,
        padding: Padding::Sixteen,
        key,
        ivs,
        log2_data_unit: 0,
    }
}

/// The policies that Linux allows, by number of modes and flags.
#[test]
fn policies_of_linux_are_allowed_and_no_others() {
    let mut allowed = Vec::new();
    for key in KEYS {
        for contents in CONTENTS {
            for names in NAMES {
                for ivs in IVS {
                    let policy = policy(contents, names, ivs, key);
                    let context = Context {
                        policy,
                        nonce: [9; 16],
                    };
                    let parsed = Context::parse(&context.to_bytes());
                    match policy.check() {
                        Ok(()) => {
                            assert_eq!(parsed, Ok(context));
                            assert_eq!(Policy::parse(&policy.to_bytes()), Ok(policy));
                            let numbers = (contents.number(), names.number());
                            allowed.push((key.bytes().len(), numbers, ivs));
                        }
                        Err(refusal) => assert_eq!(parsed, Err(BadContext::Policy(refusal))),
                    }
                }
            }
        }
    }
    let expected = [
        (8, (1, 4), Ivs::PerFileKey),
        (8, (5, 6), Ivs::PerFileKey),
        (8, (9, 9), Ivs::PerFileKey),
        (8, (9, 9), Ivs::DirectKey),
        (16, (1, 4), Ivs::PerFileKey),
        (16, (1, 4), Ivs::InoLblk64),
        (16, (1, 4), Ivs::InoLblk32),
        (16, (1, 10), Ivs::PerFileKey),
        (16, (1, 10), Ivs::InoLblk64),
        (16, (1, 10), Ivs::InoLblk32),
        (16, (5, 6), Ivs::PerFileKey),
        (16, (9, 9), Ivs::PerFileKey),
        (16, (9, 9), Ivs::DirectKey),
    ];
    assert_eq!(allowed, expected);
}

#[test]
fn fields_stand_where_linux_has_them() {
    let first = policy(
        ContentsMode::Adiantum,
        NamesMode::Adiantum,
        Ivs::DirectKey,
        KeyId::Descriptor(*b"12345678"),
    );
    let nonce = *b"nonce of an inod";
    let context = Context {
        policy: first,
        nonce,
    };
    let bytes = [&[1, 9, 9, 6], b"12345678".as_slice(), &nonce].concat();
    assert_eq!(context.to_bytes(), bytes);
    assert_eq!(first.to_bytes(), [&[0], &bytes[1..12]].concat());

    let identifier = *b"0123456789abcdef";
    let second = Policy {
        log2_data_unit: 9,
        padding: Padding::ThirtyTwo,
        ..policy(
            ContentsMode::Aes256Xts,
            NamesMode::Aes256Hctr2,
            Ivs::InoLblk32,
            KeyId::Identifier(identifier),
        )
    };
    let context = Context {
        policy: second,
        nonce,
    };
    let bytes = [&[2, 1, 10, 0x13, 9, 0, 0, 0], identifier.as_slice(), &nonce].concat();
    assert_eq!(context.to_bytes(), bytes);
    assert_eq!(Context::parse(&bytes), Ok(context));
    assert_eq!(second.to_bytes(), bytes[..24]);
}

/// Any byte changed, and any length: a refusal or a context that has these bytes.
#[test]
fn bytes_are_refused_or_mean_what_they_are() {
    let mut accepted = 0;
    for key in KEYS {
        let policy = policy(
            ContentsMode::Aes256Xts,
            NamesMode::Aes256Cts,
            Ivs::PerFileKey,
            key,
        );
        let nonce = [0xaa; 16];
        let whole = Context { policy, nonce }.to_bytes();
        for length in 0..whole.len() + 20 {
            let mut bytes = whole.clone();
            bytes.resize(length, 0);
            assert_eq!(Context::parse(&bytes).is_ok(), length == whole.len());
            let _refusal = Policy::parse(&bytes);
        }
        for at in 0..whole.len() {
            for byte in 0..=u8::MAX {
                let mut bytes = whole.clone();
                bytes[at] = byte;
                if let Ok(context) = Context::parse(&bytes) {
                    assert_eq!(context.to_bytes(), bytes);
                    assert_eq!(context.policy.check(), Ok(()));
                    accepted += 1;
                }
            }
        }
    }
    // Key and nonce may be anything. Version and mode of contents have one value, that of names two
    // in version 2; flags have four values and twelve, a unit nine, each reserved byte one.
    let of_first = 24 * 256 + 3 + 4;
    let of_second = 32 * 256 + 1 + 1 + 2 + 12 + 9 + 3;
    assert_eq!(accepted, of_first + of_second);
}

#[test]
fn what_is_refused_is_named() {
    let mut bytes = [0; 40];
    assert_eq!(Context::parse(&bytes), Err(BadContext::Version(0)));
    assert_eq!(Context::parse(&[]), Err(BadContext::Empty));
    bytes[0] = 2;
    let said = |bytes: &[u8]| Context::parse(bytes).unwrap_err().to_string();
    assert_eq!(
        said(&bytes[..39]),
        "an encryption context of version 2 has not 39 bytes"
    );
    bytes[1..3].copy_from_slice(&[7, 8]);
    let sm4 = "encryption context: encryption by SM4 is not supported (modes 7 and 8)";
    assert_eq!(said(&bytes), sm4);
    bytes[1..3].copy_from_slice(&[1, 4]);
    bytes[3] = 0xc;
    let flags = "encryption context: encryption flags 0xc are not allowed";
    assert_eq!(said(&bytes), flags);
    bytes[3] = 4;
    let direct = Err(BadContext::Policy(BadPolicy::DirectKey));
    assert_eq!(Context::parse(&bytes), direct);
    bytes[3] = 0;
    bytes[4] = 8;
    let unit = Err(BadContext::Policy(BadPolicy::DataUnit(8)));
    assert_eq!(Context::parse(&bytes), unit);
    bytes[4] = 0;
    bytes[6] = 1;
    let reserved = Err(BadContext::Policy(BadPolicy::Reserved));
    assert_eq!(Context::parse(&bytes), reserved);
}

#[test]
fn units_fit_blocks_that_are_as_large() {
    let unit = |log2_data_unit, ivs| Policy {
        log2_data_unit,
        ..policy(
            ContentsMode::Aes256Xts,
            NamesMode::Aes256Cts,
            ivs,
            KeyId::Identifier([0; 16]),
        )
    };
    let sector = unit(9, Ivs::PerFileKey);
    assert!(sector.fits(1024) && sector.fits(65536));
    assert_eq!(sector.unit_bytes(4096), 512);
    let page = unit(12, Ivs::PerFileKey);
    assert!(page.fits(4096) && !page.fits(2048));
    for ivs in [Ivs::InoLblk64, Ivs::InoLblk32] {
        assert!(!unit(9, ivs).fits(4096) && unit(12, ivs).fits(4096));
        assert!(unit(0, ivs).fits(4096));
    }
    assert_eq!(unit(0, Ivs::PerFileKey).unit_bytes(4096), 4096);
}

/// Linux wants a key as long as the mode's of version 1, and as strong of version 2.
#[test]
fn short_and_other_keys_are_refused() {
    assert_eq!(MasterKey::new(&[0; 15]).err(), Some(BadKey::Length(15)));
    assert_eq!(MasterKey::new(&[0; 65]).err(), Some(BadKey::Length(65)));
    let serves = |bytes: usize, contents, names, is_first: bool| {
        let key = MasterKey::new(&vec![5; bytes]).unwrap();
        let id = match is_first {
            true => key.descriptor(),
            false => key.identifier(),
        };
        let policy = policy(contents, names, Ivs::PerFileKey, id);
        let nonce = [1; 16];
        let context = Context { policy, nonce };
        let of_contents = key.contents(&context, 12, &[0; 16]).is_ok();
        (of_contents, key.names(&context, 12, &[0; 16]).is_ok())
    };
    let (xts, cts) = (ContentsMode::Aes256Xts, NamesMode::Aes256Cts);
    assert_eq!(serves(64, xts, cts, true), (true, true));
    assert_eq!(serves(63, xts, cts, true), (false, true));
    assert_eq!(serves(32, xts, cts, true), (false, true));
    assert_eq!(serves(31, xts, cts, true), (false, false));
    assert_eq!(serves(32, xts, cts, false), (true, true));
    assert_eq!(serves(31, xts, cts, false), (false, false));
    let (essiv, short) = (ContentsMode::Aes128CbcEssiv, NamesMode::Aes128Cts);
    assert_eq!(serves(16, essiv, short, true), (true, true));
    assert_eq!(serves(16, essiv, short, false), (true, true));

    let key = MasterKey::new(&[1; 64]).unwrap();
    let other = MasterKey::new(&[2; 64]).unwrap().identifier();
    let policy = policy(xts, cts, Ivs::PerFileKey, other);
    let nonce = [1; 16];
    let refusal = key.contents(&Context { policy, nonce }, 12, &[0; 16]).err();
    assert_eq!(refusal, Some(BadKey::Other(other)));
}

#[test]
fn no_key_is_shown() {
    let key = MasterKey::new(b"a secret of more than sixteen bytes that is long").unwrap();
    let shown = format!("{key:?}");
    assert_eq!(shown, format!("MasterKey({})", key.identifier()));
    let policy = policy(
        ContentsMode::Aes256Xts,
        NamesMode::Aes256Cts,
        Ivs::PerFileKey,
        key.identifier(),
    );
    let nonce = [1; 16];
    let context = Context { policy, nonce };
    let contents = key.contents(&context, 12, &[0; 16]).unwrap();
    assert_eq!(format!("{contents:?}"), "ContentsCipher { .. }");
    let names = key.names(&context, 12, &[0; 16]).unwrap();
    assert_eq!(format!("{names:?}"), "NameCipher { .. }");
}

#[test]
fn names_are_padded_to_at_most_a_limit() {
    let key = MasterKey::new(&[1; 64]).unwrap();
    let cipher = |padding| {
        let policy = Policy {
            padding,
            ..policy(
                ContentsMode::Aes256Xts,
                NamesMode::Aes256Cts,
                Ivs::PerFileKey,
                key.identifier(),
            )
        };
        let nonce = [1; 16];
        key.names(&Context { policy, nonce }, 12, &[0; 16]).unwrap()
    };
    let four = cipher(Padding::Four);
    let of_four = |plain| four.encrypted_len(plain, 255);
    assert_eq!(
        [1, 16, 17, 20, 21].map(of_four),
        [16, 16, 20, 20, 24].map(Some)
    );
    assert_eq!([252, 253, 255].map(of_four), [252, 255, 255].map(Some));
    assert_eq!([256, usize::MAX].map(of_four), [None; 2]);
    let large = cipher(Padding::ThirtyTwo);
    let of_large = |plain| large.encrypted_len(plain, 255);
    assert_eq!(
        [1, 32, 33, 224, 225].map(of_large),
        [32, 32, 64, 224, 255].map(Some)
    );

    let stored = large.encrypt(b"a name", 32);
    assert_eq!(stored.len(), 32);
    assert_eq!(
        large.decrypt(&stored).as_deref(),
        Some(b"a name".as_slice())
    );
    assert_eq!(large.decrypt(&stored[..15]), None);
    assert_eq!(large.encrypt(b"a name", 0).len(), 16);
}

/// SipHash of the authors' key and text is 0xa129ca6149be45e5 (read as a number of the other
/// order); here the key is derived, so that the halves and the free lowest bit remain to be seen.
#[test]
fn hashes_of_names_leave_the_lowest_bit_free() {
    let key = MasterKey::new(&[1; 64]).unwrap();
    let hash = |id, name: &[u8]| {
        let policy = policy(
            ContentsMode::Aes256Xts,
            NamesMode::Aes256Cts,
            Ivs::PerFileKey,
            id,
        );
        let nonce = [1; 16];
        let names = key.names(&Context { policy, nonce }, 12, &[0; 16]);
        names.unwrap().dir_hash(name)
    };
    assert_eq!(hash(key.descriptor(), b"a"), None);
    let all = (0..64_u8).map(|name| hash(key.identifier(), &[name]).unwrap());
    let (majors, minors): (Vec<u32>, Vec<u32>) = all.unzip();
    assert!(majors.iter().all(|major| major & 1 == 0));
    assert!(minors.iter().any(|minor| minor & 1 == 1));
    let different: std::collections::BTreeSet<u32> = majors.into_iter().collect();
    assert_eq!(different.len(), 64);
}
