use super::writer::{header, line, seconds};
use super::*;

fn file(name: &[u8]) -> Member {
    Member {
        kind: kind::REGULAR,
        name: name.to_vec(),
        mode: 0o644,
        ..Member::default()
    }
}

fn round(member: &Member, content: &[u8]) -> (Member, Vec<u8>) {
    let mut archive = Vec::new();
    let mut writer = Writer::new(&mut archive);
    writer.append(member, content).unwrap();
    writer.finish().unwrap();
    assert_eq!(archive.len() % BLOCK, 0);
    let mut reader = Reader::new(archive.as_slice());
    let member = reader.next().unwrap().unwrap();
    let mut content = Vec::new();
    reader.read_to_end(&mut content).unwrap();
    assert_eq!(reader.next().unwrap(), None);
    (member, content)
}

#[test]
fn what_is_written_is_read() {
    let mut member = file(&[b'n'; 300]);
    member.uid = u32::MAX - 1;
    member.gid = 0o777_7777;
    member.size = 700;
    member.mtime = Timestamp {
        secs: -2,
        nanos: 750_000_000,
    };
    // Every byte, the end of a line and zero among them.
    let value: Vec<u8> = (0..=255).collect();
    member.xattrs = vec![(b"user.a".to_vec(), value), (b"user.b".to_vec(), vec![])];
    assert_eq!(round(&member, &[7; 700]), (member, vec![7; 700]));

    let mut link = file(b"l");
    link.kind = kind::SYMLINK;
    link.link = vec![b'x'; 101];
    assert_eq!(round(&link, &[]), (link, vec![]));

    let mut node = file(&[b'n'; 100]);
    (node.kind, node.major, node.minor) = (kind::BLOCK, 259, 70_000);
    assert_eq!(round(&node, &[]), (node, vec![]));
}

#[test]
fn a_value_that_looks_like_a_record_is_none() {
    let mut member = file(b"f");
    let value = b"y\n15 path=etc/pw\n10 uid=0\nz".to_vec();
    member.xattrs = vec![(b"user.note".to_vec(), value)];
    assert_eq!(round(&member, b""), (member, vec![]));
}

#[test]
fn lines_count_their_own_length() {
    for len in [1, 5, 6, 7, 90, 91, 92, 990, 991, 992] {
        let mut extra = Vec::new();
        line(&mut extra, b"k", &vec![b'v'; len]);
        let text = String::from_utf8(extra.clone()).unwrap();
        let said: usize = text.split(' ').next().unwrap().parse().unwrap();
        assert_eq!(said, extra.len());
    }
}

#[test]
fn times_have_fractions_and_signs() {
    let read = |text: &str| timestamp(text.as_bytes()).map(|t| (t.secs, t.nanos));
    assert_eq!(read("12"), Some((12, 0)));
    assert_eq!(read("12.5"), Some((12, 500_000_000)));
    assert_eq!(read("12.1234567891"), Some((12, 123_456_789)));
    assert_eq!(read("-1.25"), Some((-2, 750_000_000)));
    assert_eq!(read("-0.5"), Some((-1, 500_000_000)));
    for text in ["", "x", "1.x", ".5", "1.-5"] {
        assert_eq!(read(text), None, "{text}");
    }
    let of = |secs, nanos| seconds(Timestamp { secs, nanos });
    assert_eq!(of(12, 5), "12.000000005");
    assert_eq!(of(-2, 750_000_000), "-1.250000000");
    assert_eq!(of(-1, 500_000_000), "-0.500000000");
    assert_eq!(of(-7, 0), "-7");
}

#[test]
fn numbers_are_octal_or_binary() {
    let of = |bytes: &[u8]| {
        let mut header = [0; BLOCK];
        header[..bytes.len()].copy_from_slice(bytes);
        number(&header, 0..12).ok()
    };
    assert_eq!(of(b"0000644\0"), Some(0o644));
    assert_eq!(of(b"   644 "), Some(0o644));
    assert_eq!(of(b""), Some(0));
    assert_eq!(of(b"\x80\0\0\0\0\0\0\x01\0\0\0\0"), Some(1 << 32));
    assert_eq!(of(&[0xff; 12]), Some(-1));
    assert_eq!(of(&[0xbf; 12]), None);
    assert_eq!(of(b"-1"), None);
    assert_eq!(of(b"9"), None);
}

#[test]
fn no_bytes_make_it_panic_or_take_much() {
    let mut archive = Vec::new();
    let mut writer = Writer::new(&mut archive);
    let mut member = file(&[b'n'; 150]);
    member.size = 1000;
    member.xattrs = vec![(b"user.a".to_vec(), vec![1; 50])];
    writer.append(&member, [3; 1000].as_slice()).unwrap();
    writer.append(&file(b"second"), io::empty()).unwrap();
    writer.finish().unwrap();
    let drain = |bytes: &[u8]| {
        let mut reader = Reader::new(bytes);
        while let Ok(Some(_)) = reader.next() {}
    };
    for len in 0..archive.len() {
        drain(&archive[..len]);
    }
    for at in 0..archive.len() {
        for byte in [0, 0x7f, 0x80, 0xff, b' ', b'9'] {
            let mut damaged = archive.clone();
            damaged[at] = byte;
            drain(&damaged);
        }
    }
    // A header that says it goes on for ever.
    let mut own = file(b"x");
    (own.kind, own.size) = (kind::PAX, 1 << 32);
    let header = header(&own, &mut Vec::new());
    let mut reader = Reader::new(header.as_slice());
    let said = reader.next().unwrap_err().to_string();
    assert_eq!(said, "a header of 4294967296 bytes");
}

#[test]
fn cut_short_is_an_error() {
    let mut archive = Vec::new();
    let mut member = file(b"f");
    member.size = 1000;
    let mut writer = Writer::new(&mut archive);
    writer.append(&member, [3; 1000].as_slice()).unwrap();
    let mut reader = Reader::new(&archive[..BLOCK + 300]);
    reader.next().unwrap().unwrap();
    assert!(reader.next().is_err());
    let mut reader = Reader::new(&archive[..300]);
    assert!(reader.next().is_err());
    assert!(Reader::new(&[7; 2 * BLOCK][..]).next().is_err());
}

#[test]
fn an_end_that_is_none_is_told() {
    let mut archive = Vec::new();
    let mut member = file(&[b'n'; 150]);
    member.size = 100;
    let mut writer = Writer::new(&mut archive);
    writer.append(&member, [3; 100].as_slice()).unwrap();
    writer.finish().unwrap();
    let whole = archive.len() - 2 * BLOCK;
    let end = |len: usize| {
        let mut reader = Reader::new(&archive[..len]);
        while reader.next()?.is_some() {}
        Ok::<_, io::Error>(reader.marked())
    };
    assert!(end(archive.len()).unwrap());
    assert!(end(whole + BLOCK).unwrap());
    assert!(!end(whole).unwrap());
    // Without some of its padding; after the pax header that holds the name, with and without that one's padding.
    assert!(end(whole - 1).is_err());
    assert!(end(2 * BLOCK).is_err());
    assert!(end(2 * BLOCK - 1).is_err());
}

#[test]
fn sizes_that_no_file_has_are_refused() {
    for (size, right) in [(i64::MAX as u64, true), (1 << 63, false), (u64::MAX, false)] {
        let mut member = file(b"f");
        member.size = size;
        let mut extra = Vec::new();
        let own = header(&member, &mut extra);
        let mut pax = file(b"x");
        (pax.kind, pax.size) = (kind::PAX, extra.len() as u64);
        let mut archive = header(&pax, &mut Vec::new()).to_vec();
        extra.resize(BLOCK, 0);
        archive.extend(extra);
        archive.extend(own);
        let read = Reader::new(archive.as_slice()).next();
        assert_eq!(read.is_ok(), right, "{size}");
    }
}

#[test]
fn a_long_map_of_a_sparse_file_is_gone_past() {
    let sum = |header: &mut [u8; BLOCK]| {
        header[CHECKSUM].fill(b' ');
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    };
    let mut sparse = file(b"sparse");
    (sparse.kind, sparse.size) = (kind::GNU_SPARSE, 100);
    let mut own = header(&sparse, &mut Vec::new());
    own[MORE] = 1;
    sum(&mut own);
    let mut map = [7; BLOCK];
    let mut archive = own.to_vec();
    archive.extend(map);
    map[MORE_OF_MAP] = 0;
    archive.extend(map);
    archive.extend([9; BLOCK]);
    archive.extend(header(&file(b"next"), &mut Vec::new()));
    let mut reader = Reader::new(archive.as_slice());
    assert!(reader.next().unwrap().unwrap().sparse);
    assert_eq!(reader.next().unwrap().unwrap().name, b"next");
    // One that never ends is no reason to read for ever.
    let endless = own.as_slice().chain(io::repeat(1));
    assert!(Reader::new(endless).next().is_err());
}
