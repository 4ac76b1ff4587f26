//! Keys beside the tables of e2fsprogs: debugfs hashes a name folded, and its key as it stands.

use extant_casefold::{fold, has_key, is_text, key};
use extant_testkit::need::Need;
use extant_testkit::{Cmd, Rng, TempDir, need};

/// Has debugfs hash `names`, one by one; then `None` for each that it cannot fold.
fn hashes(how: &str, names: &[Vec<u8>]) -> Vec<Option<String>> {
    let dir = TempDir::new("casefold").unwrap();
    let requests = dir.path().join("requests");
    let line = |name: &Vec<u8>| [b"dx_hash -h half_md4 ", how.as_bytes(), name, b"\n"].concat();
    std::fs::write(&requests, names.iter().flat_map(line).collect::<Vec<u8>>()).unwrap();
    let said = Cmd::new("debugfs").arg("-f").arg(&requests).ok().unwrap();
    let answers: Vec<Option<String>> = (said.out.lines().chain(said.err.lines()))
        .filter_map(|line| match line.rsplit_once(" is 0x") {
            Some((_, hash)) => Some(Some(hash.to_owned())),
            None => line.starts_with("dx_hash: ").then_some(None),
        })
        .collect();
    assert_eq!(answers.len(), names.len(), "an answer for each name");
    answers
}

/// Compares the keys of `names`, all of them text, with what debugfs makes of them.
fn compare(names: &[Vec<u8>]) {
    let keys: Vec<Vec<u8>> = names.iter().map(|name| key(name).into_owned()).collect();
    let folded = hashes("-c -e utf8 ", names);
    for (at, (theirs, ours)) in folded.iter().zip(hashes("", &keys)).enumerate() {
        let name = String::from_utf8_lossy(&names[at]);
        let key = String::from_utf8_lossy(&keys[at]);
        assert!(theirs.is_some(), "{name:?} is text");
        assert_eq!(*theirs, ours, "{name:?}, which has the key {key:?}");
    }
}

/// A mark of the lowest class behind each character shows its class as well.
#[test]
fn every_character_folds_as_in_the_tables_of_the_format() {
    if !need(&[Need::Tool("debugfs")]) {
        return;
    }
    let all = ('\u{80}'..=char::MAX).map(|c| format!("A{c}\u{334}B").into_bytes());
    compare(&all.collect::<Vec<_>>());
}

#[test]
fn texts_fold_as_in_the_tables_of_the_format() {
    if !need(&[Need::Tool("debugfs")]) {
        return;
    }
    let pool: Vec<char> = "AzßẞİıſKÅåﬃᾳ\u{345}\u{301}\u{323}\u{334}\u{35d}\u{ad}\u{200d}\u{fe0f}\
        \u{fff0}\u{e0fff}한\u{1112}\u{1161}\u{11ab}\u{1abf}\u{1acb}\u{1dfa}ꟀꞲΣς葉\u{378}\u{10ffff}"
        .chars()
        .collect();
    let mut rng = Rng::new(12);
    let mut draw = || {
        let chars = (0..1 + rng.below(9)).map(|_| pool[rng.index(pool.len())]);
        format!("x{}", chars.collect::<String>()).into_bytes()
    };
    compare(&(0..20_000).map(|_| draw()).collect::<Vec<_>>());
}

#[test]
fn bytes_fold_where_debugfs_can_fold_them() {
    if !need(&[Need::Tool("debugfs")]) {
        return;
    }
    let mut rng = Rng::new(5);
    let pieces: [&[u8]; 13] = [
        b"a",
        b"Z",
        b"\x80",
        b"\xbf",
        b"\xc0\x80",
        b"\xc3",
        b"\xe0\x9f",
        b"\xed\xa0\x80",
        b"\xf0\x8f",
        b"\xf4\x90\x80\x80",
        b"\xe2\x84\xaa",
        b"\xf0\x90\x90\x80",
        b"\xc3\x85",
    ];
    let mut draw = || {
        let some = (0..1 + rng.below(3)).map(|_| pieces[rng.index(pieces.len())]);
        some.collect::<Vec<_>>().concat()
    };
    let names: Vec<Vec<u8>> = (0..5_000).map(|_| draw()).collect();
    let (folded, others): (Vec<_>, Vec<_>) = names.into_iter().partition(|n| fold(n).is_some());
    assert!((1_000..4_000).contains(&folded.len()), "{}", folded.len());
    assert!(folded.iter().any(|name| !is_text(name)));
    compare(&folded);
    let stay = |name: &Vec<u8>| *key(name) == **name && !is_text(name);
    assert!(others.iter().all(stay));
    let begins_astray = |name: &Vec<u8>| matches!(**name, [0x80..=0xbf, ..]);
    let (astray, others): (Vec<_>, Vec<_>) = others.into_iter().partition(begins_astray);
    let refused = hashes("-c -e utf8 ", &others);
    assert_eq!(refused.iter().flatten().count(), 0, "debugfs folds none");
    // These it hashes as they stand, and does not say so.
    compare(&astray);
}

/// The key of a character and a mark is its own key: a cache of names knows entries by theirs.
#[test]
fn the_key_of_a_key_is_the_key() {
    for c in '\u{0}'..=char::MAX {
        let name = format!("x{c}\u{301}");
        let key_of_it = key(name.as_bytes());
        assert_eq!(key(&key_of_it), key_of_it, "{name:?}");
        assert!(has_key(name.as_bytes(), &key_of_it), "{name:?}");
        for other in [&key_of_it[..key_of_it.len() - 1], b"x", b"y\xcc\x81", b""] {
            assert!(!has_key(name.as_bytes(), other), "{name:?}, {other:?}");
        }
        assert!(key_of_it.len() <= 3 * name.len(), "{name:?}");
    }
}
