use super::adiantum::Adiantum;
use super::cbc_cts::CbcCts;
use super::cbc_essiv::CbcEssiv;
use super::hctr2::Hctr2;
use super::nh::{KEY_BYTES, Nh};
use super::xts::Xts;
use super::{TextCipher, UnitCipher};
use crate::policy::{ContentsMode, NamesMode};
use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use sha2::{Digest, Sha256};

fn hex(digits: &str) -> Vec<u8> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    assert_eq!(rest, []);
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    pairs.iter().map(byte).collect()
}

fn array<const BYTES: usize>(digits: &str) -> [u8; BYTES] {
    hex(digits).try_into().unwrap()
}

/// Key, vector, text and ciphertext of each line.
fn vectors(file: &str) -> Vec<[Vec<u8>; 4]> {
    let lines = file.lines().filter(|line| !line.starts_with('#'));
    let all = lines.map(|line| {
        let parts: Vec<Vec<u8>> = line.split(' ').map(hex).collect();
        parts.try_into().unwrap()
    });
    all.collect()
}

#[test]
fn adiantum_is_that_of_its_authors() {
    let all = vectors(include_str!("vectors/adiantum.txt"));
    assert_eq!(all.len(), 7);
    for [key, vector, text, expected] in all {
        let cipher = Adiantum::new(key.as_slice().try_into().unwrap());
        let mut bytes = text.clone();
        cipher.encrypt(&vector, &mut bytes);
        assert_eq!(bytes, expected);
        cipher.decrypt(&vector, &mut bytes);
        assert_eq!(bytes, text);
    }
}

#[test]
fn hctr2_is_that_of_its_authors() {
    let all = vectors(include_str!("vectors/hctr2.txt"));
    assert_eq!(all.len(), 9);
    for [key, vector, text, expected] in all {
        let cipher = Hctr2::new(key.as_slice().try_into().unwrap());
        let vector = vector.try_into().unwrap();
        let mut bytes = text.clone();
        cipher.encrypt(&vector, &mut bytes);
        assert_eq!(bytes, expected);
        cipher.decrypt(&vector, &mut bytes);
        assert_eq!(bytes, text);
    }
}

/// NH of a message of zeros with a key of ones is that many products of ones.
#[test]
fn a_hash_of_zeros_counts_the_words() {
    let mut key = [0; KEY_BYTES];
    let (words, _) = key.as_chunks_mut::<4>();
    words.fill(1_u32.to_le_bytes());
    let sums = |bytes: usize| {
        let hash = Nh::new(&key).hash(&vec![0; bytes]);
        let (sums, _) = hash.as_chunks::<8>();
        [0, 1, 2, 3].map(|at| u64::from_le_bytes(sums[at]))
    };
    assert_eq!(sums(1024), [128; 4]);
    assert_eq!(sums(1023), [128; 4]);
    assert_eq!(sums(17), [4; 4]);
}

/// IEEE 1619's vector 10: AES-256-XTS of a unit of 512 bytes, whose number is 0xff.
#[test]
fn xts_is_that_of_the_standard() {
    let key = array(concat!(
        "2718281828459045235360287471352662497757247093699959574966967627",
        "3141592653589793238462643383279502884197169399375105820974944592",
    ));
    let cipher = Xts::new(&key);
    let mut vector = [0; 16];
    vector[0] = 0xff;
    let text: Vec<u8> = (0..=255).chain(0..=255).collect();
    let mut bytes = text.clone();
    cipher.encrypt(&vector, &mut bytes);
    let start = "1c3b3a102f770386e4836c99e370cf9bea00803f5e482357a4ae12d414a3e63b";
    assert_eq!(bytes[..32], hex(start));
    assert_eq!(bytes[496..], hex("c4f36ffda9fcea70b9c6e693e148c151"));
    // Of all its bytes, as OpenSSL encrypts them.
    assert_eq!(Sha256::digest(&bytes)[..8], hex("e97e974fa393af79"));
    cipher.decrypt(&vector, &mut bytes);
    assert_eq!(bytes, text);
}

/// RFC 3962's vectors, of AES-128 with a vector of zeros; and one block, which is CBC.
#[test]
fn ciphertext_stealing_is_that_of_kerberos() {
    let key = b"chicken teriyaki";
    let cipher = CbcCts::<Aes128>::new(key);
    let text = b"I would like the General Gau's Chicken, please, and wonton soup.";
    let of_texts = [
        (17, "c6353568f2bf8cb4d8a580362da7ff7f97"),
        (
            31,
            "fc00783e0efdb2c1d445d4c8eff7ed2297687268d6ecccc0c07b25e25ecfe5",
        ),
        (
            32,
            "39312523a78662d5be7fcbcc98ebf5a897687268d6ecccc0c07b25e25ecfe584",
        ),
        (
            47,
            concat!(
                "97687268d6ecccc0c07b25e25ecfe584b3fffd940c16a18c1b5549d2f838029e",
                "39312523a78662d5be7fcbcc98ebf5",
            ),
        ),
        (
            48,
            concat!(
                "97687268d6ecccc0c07b25e25ecfe5849dad8bbb96c4cdc03bc103e1a194bbd8",
                "39312523a78662d5be7fcbcc98ebf5a8",
            ),
        ),
        (
            64,
            concat!(
                "97687268d6ecccc0c07b25e25ecfe58439312523a78662d5be7fcbcc98ebf5a8",
                "4807efe836ee89a526730dbc2f7bc8409dad8bbb96c4cdc03bc103e1a194bbd8",
            ),
        ),
    ];
    let check = |bytes: usize, expected: &[u8]| {
        let mut changed = text[..bytes].to_vec();
        cipher.encrypt(&[0; 16], &mut changed);
        assert_eq!(changed, expected, "{bytes} bytes");
        cipher.decrypt(&[0; 16], &mut changed);
        assert_eq!(changed, text[..bytes], "{bytes} bytes");
    };
    for (bytes, expected) in of_texts {
        check(bytes, &hex(expected));
    }
    let mut one = aes::Block::try_from(&text[..16]).unwrap();
    Aes128::new(key.into()).encrypt_block(&mut one);
    check(16, &one);
}

/// NIST SP 800-38A's F.2.1: CBC of AES-128, here behind a vector that ESSIV makes.
#[test]
fn essiv_is_cbc_behind_an_encrypted_vector() {
    let key = array("2b7e151628aed2a6abf7158809cf4f3c");
    let cipher = CbcEssiv::new(&key);
    let texts = concat!(
        "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51",
        "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710",
    );
    let expected = concat!(
        "7649abac8119b246cee98e9b12e9197d5086cb9b507219ee95db113a917678b2",
        "73bed6b8e3c1743b7116e69e222295163ff1caa1681fac09120eca307586e1a7",
    );
    // The vector that encrypts to the one of the standard.
    let digest = Sha256::digest(key);
    let mut vector = aes::Block::from(array("000102030405060708090a0b0c0d0e0f"));
    let cipher_of_vectors = aes::Aes256::new(&digest);
    aes::cipher::BlockCipherDecrypt::decrypt_block(&cipher_of_vectors, &mut vector);
    let mut bytes = hex(texts);
    cipher.encrypt(&vector.into(), &mut bytes);
    assert_eq!(bytes, hex(expected));
    cipher.decrypt(&vector.into(), &mut bytes);
    assert_eq!(bytes, hex(texts));
}

/// A cipher is its own inverse for all lengths, and another vector makes another ciphertext.
#[test]
fn what_is_encrypted_is_decrypted() {
    let bytes = |count: usize| -> Vec<u8> { (0..=250).cycle().take(count).collect() };
    let vector = |first: u8| {
        let mut vector = [0; 32];
        vector[0] = first;
        vector
    };
    let of_contents = [
        (ContentsMode::Aes256Xts, 64),
        (ContentsMode::Aes128CbcEssiv, 16),
        (ContentsMode::Adiantum, 32),
    ];
    for (mode, key) in of_contents {
        let cipher = UnitCipher::new(mode, &bytes(key));
        for count in [16, 512, 528, 4096, 65536] {
            let (mut one, mut other) = (bytes(count), bytes(count));
            cipher.encrypt(&vector(1), &mut one);
            cipher.encrypt(&vector(2), &mut other);
            assert_ne!(one, other, "{mode:?}");
            cipher.decrypt(&vector(1), &mut one);
            assert_eq!(one, bytes(count), "{mode:?}, {count} bytes");
        }
    }
    let of_names = [
        (NamesMode::Aes256Cts, 32),
        (NamesMode::Aes128Cts, 16),
        (NamesMode::Adiantum, 32),
        (NamesMode::Aes256Hctr2, 32),
    ];
    for (mode, key) in of_names {
        let cipher = TextCipher::new(mode, &bytes(key));
        for count in 16..300 {
            let (mut one, mut other) = (bytes(count), bytes(count));
            cipher.encrypt(&vector(1), &mut one);
            cipher.encrypt(&vector(2), &mut other);
            assert_ne!(one, other, "{mode:?}");
            cipher.decrypt(&vector(1), &mut one);
            assert_eq!(one, bytes(count), "{mode:?}, {count} bytes");
        }
    }
}
