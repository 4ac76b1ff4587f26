use super::header::{CHECKSUM, Timestamp, number};
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
    let member = reader.next_member().unwrap().unwrap();
    let mut content = Vec::new();
    reader.read_to_end(&mut content).unwrap();
    assert_eq!(reader.next_member().unwrap(), None);
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
fn a_long_name_whose_first_part_ends_at_a_slash_is_of_a_file() {
    // The header itself has room for a hundred bytes of it.
    let name = [&[b'd'; 99][..], b"/file"].concat();
    let mut member = file(&name);
    member.size = 3;
    assert_eq!(round(&member, b"abc"), (member, b"abc".to_vec()));

    let old = file(b"directory/");
    let (read, _) = round(&old, b"");
    assert_eq!(read.kind, kind::DIRECTORY);
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
        while let Ok(Some(_)) = reader.next_member() {}
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
    let said = reader.next_member().unwrap_err().to_string();
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
    reader.next_member().unwrap().unwrap();
    assert!(reader.next_member().is_err());
    let mut reader = Reader::new(&archive[..300]);
    assert!(reader.next_member().is_err());
    assert!(Reader::new(&[7; 2 * BLOCK][..]).next_member().is_err());
}

#[test]
fn an_end_that_is_none_is_reported() {
    let mut archive = Vec::new();
    let mut member = file(&[b'n'; 150]);
    member.size = 100;
    let mut writer = Writer::new(&mut archive);
    writer.append(&member, [3; 100].as_slice()).unwrap();
    writer.finish().unwrap();
    let whole = archive.len() - 2 * BLOCK;
    let end = |len: usize| {
        let mut reader = Reader::new(&archive[..len]);
        while reader.next_member()?.is_some() {}
        Ok::<_, io::Error>(reader.marked())
    };
    assert!(end(archive.len()).unwrap());
    assert!(end(whole + BLOCK).unwrap());
    assert!(!end(whole).unwrap());
    // Without some of its padding; after the pax header that holds the name, with and without that
    // one's padding.
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
        let read = Reader::new(archive.as_slice()).next_member();
        assert_eq!(read.is_ok(), right, "{size}");
    }
}

/// An archive of these headers of one kind, each followed by its content.
fn pax(headers: &[(u8, &[(&str, &str)])], content: &[u8]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (kind, lines) in headers {
        let mut extra = Vec::new();
        for (key, value) in *lines {
            line(&mut extra, key.as_bytes(), value.as_bytes());
        }
        let mut own = file(b"x");
        (own.kind, own.size) = (*kind, extra.len() as u64);
        archive.extend(header(&own, &mut Vec::new()));
        extra.resize(extra.len().next_multiple_of(BLOCK), 0);
        archive.extend(extra);
    }
    let mut member = file(b"plain");
    (member.uid, member.size) = (9, content.len() as u64);
    archive.extend(header(&member, &mut Vec::new()));
    archive.extend(content);
    archive.resize(archive.len().next_multiple_of(BLOCK), 0);
    archive
}

#[test]
fn what_is_said_of_all_holds_until_it_is_taken_back() {
    let (all, one) = (kind::PAX_GLOBAL, kind::PAX);
    let of = |headers: &[(u8, &[(&str, &str)])]| pax(headers, b"");
    let archive = [
        of(&[(
            all,
            &[
                ("comment", "c"),
                ("gid", "7"),
                ("uid", "5"),
                ("SCHILY.xattr.user.a", "v"),
            ],
        )]),
        of(&[(one, &[("uid", "6")])]),
        of(&[(one, &[("uid", "")])]),
        of(&[(all, &[("uid", "")])]),
        of(&[(all, &[("uid", "8"), ("GNU.sparse.size", "9")])]),
    ]
    .concat();
    let mut reader = Reader::new(archive.as_slice());
    for uid in [5, 6, 9, 9, 8] {
        let member = reader.next_member().unwrap().unwrap();
        assert_eq!((member.uid, member.gid), (uid, 7));
        assert_eq!(member.xattrs, [(b"user.a".to_vec(), b"v".to_vec())]);
        assert_eq!(member.pieces, None);
    }
    // Nothing that is gone over with each member may be long.
    let long = "v".repeat(100_000);
    let archive = of(&[(all, &[("SCHILY.xattr.user.a", &long)])]);
    let said = Reader::new(archive.as_slice())
        .next_member()
        .unwrap_err()
        .to_string();
    assert!(said.starts_with("headers of 1000"), "{said}");
    let archive = of(&[(all, &[("comment", &long)])]);
    assert!(Reader::new(archive.as_slice()).next_member().is_ok());
}

/// A header with so many records; each member's work is bounded by its bytes.
fn of_records(record: impl Fn(usize) -> (String, String), count: usize) -> Member {
    let mut extra = Vec::new();
    for number in 0..count {
        let (key, value) = record(number);
        line(&mut extra, key.as_bytes(), value.as_bytes());
    }
    let own = Member {
        kind: kind::PAX,
        size: extra.len() as u64,
        ..file(b"PaxHeader")
    };
    let mut archive = header(&own, &mut Vec::new()).to_vec();
    archive.extend(&extra);
    archive.resize(archive.len().next_multiple_of(BLOCK), 0);
    archive.extend(header(&file(b"f"), &mut Vec::new()));
    archive.extend([0; 2 * BLOCK]);
    let mut reader = Reader::new(archive.as_slice());
    reader.next_member().unwrap().unwrap()
}

#[test]
fn attributes_without_an_end_are_damage_and_repeated_ones_are_one() {
    let many = |name: &str, count| {
        let key = |number| (format!("{name}{number}"), "v".to_owned());
        of_records(key, count)
    };
    for prefix in ["SCHILY.xattr.user.", "LIBARCHIVE.xattr.user."] {
        let member = many(prefix, 4096);
        assert_eq!((member.xattrs.len(), member.damage), (4096, None));
        let member = many(prefix, 400_000);
        assert_eq!(member.xattrs.len(), 4096);
        assert_eq!(member.damage, Some("more than 4096 extended attributes"));
    }
    let acls = |number| {
        let kinds = ["access", "default", "other"];
        (
            format!("SCHILY.acl.{}", kinds[number % 3]),
            "u::r".to_owned(),
        )
    };
    assert_eq!(of_records(acls, 300_000).acls.len(), 2);
    let again = |number: usize| ("SCHILY.xattr.user.a".to_owned(), number.to_string());
    let member = of_records(again, 100_000);
    assert_eq!(member.xattrs, [(b"user.a".to_vec(), b"99999".to_vec())]);
    // The value as it is goes before the encoded one, whichever comes first.
    for turn in 0..2 {
        let both = |number: usize| match number == turn {
            true => ("SCHILY.xattr.user.a".to_owned(), "plain".to_owned()),
            false => ("LIBARCHIVE.xattr.user.a".to_owned(), "dHdv".to_owned()),
        };
        let member = of_records(both, 2);
        assert_eq!(member.xattrs, [(b"user.a".to_vec(), b"plain".to_vec())]);
    }
}

fn piece(start: u64, len: u64) -> Piece {
    Piece { start, len }
}

/// Reads one member with holes and what follows it; the name, the size, the pieces and their bytes.
fn holed(archive: &[u8]) -> (Vec<u8>, u64, Option<Vec<Piece>>, Vec<u8>) {
    let next = pax(&[], b"");
    let archive = [archive, &next].concat();
    let mut reader = Reader::new(archive.as_slice());
    let member = reader.next_member().unwrap().unwrap();
    assert_eq!(member.kind, kind::REGULAR);
    assert_eq!(member.pieces.is_none(), member.damage.is_some());
    let mut content = Vec::new();
    reader.read_to_end(&mut content).unwrap();
    assert_eq!(reader.next_member().unwrap().unwrap().name, b"plain");
    (member.name, member.size, member.pieces, content)
}

#[test]
fn holes_are_read_in_all_forms_of_pax() {
    let right = vec![piece(512, 512), piece(2048, 0)];
    let data = [7; 512];
    let zero = [
        ("GNU.sparse.size", "2048"),
        ("GNU.sparse.numblocks", "2"),
        ("GNU.sparse.offset", "512"),
        ("GNU.sparse.numbytes", "512"),
        ("GNU.sparse.offset", "2048"),
        ("GNU.sparse.numbytes", "0"),
    ];
    let read = holed(&pax(&[(kind::PAX, &zero)], &data));
    assert_eq!(
        read,
        (b"plain".to_vec(), 2048, Some(right.clone()), data.to_vec())
    );
    let mut one = vec![
        ("GNU.sparse.size", "2048"),
        ("GNU.sparse.map", "512,512,2048,0"),
        ("GNU.sparse.name", "real"),
        ("path", "GNUSparseFile.0/real"),
    ];
    let read = holed(&pax(&[(kind::PAX, &one)], &data));
    assert_eq!(read, (b"real".to_vec(), 2048, Some(right), data.to_vec()));
    // Maps that lie: past the end, out of order, more or less than there is, not a number.
    for map in [
        "2047,512",
        "512,256,512,256",
        "0,511",
        "0,513",
        "0,5x",
        "0,1,2",
        "0,512,18446744073709551615,2",
    ] {
        one[1].1 = map;
        let (_, _, pieces, _) = holed(&pax(&[(kind::PAX, &one)], &data));
        assert_eq!(pieces, None, "{map}");
    }
}

#[test]
fn holes_are_written_and_read_before_the_pieces() {
    let mut member = file(&[b'n'; 150]);
    member.size = 1 << 40;
    for pieces in [
        vec![],
        vec![piece(4096, 1024), piece(1 << 39, 512)],
        vec![piece(0, 1024), piece((1 << 40) - 5, 5)],
        (0..1000).map(|i| piece(i * 1024, 512)).collect(),
    ] {
        let stored: u64 = pieces.iter().map(|piece| piece.len).sum();
        let content: Vec<u8> = (0..stored).map(|i| i.to_le_bytes()[0]).collect();
        member.pieces = Some(pieces.clone());
        let (mut read, back) = round(&member, &content);
        // Where the map ends, the file ends.
        if let Some(pieces) = &mut read.pieces
            && pieces.last().is_some_and(|last| last.len == 0)
        {
            assert_eq!(pieces.pop(), Some(piece(1 << 40, 0)));
        }
        assert_eq!((read, back), (member.clone(), content));
    }
    // No bytes make it panic.
    let mut archive = Vec::new();
    let mut writer = Writer::new(&mut archive);
    member.pieces = Some(vec![piece(4096, 1024)]);
    writer.append(&member, [7; 1024].as_slice()).unwrap();
    for at in 0..archive.len() {
        for byte in [0, b'9', b'\n', 0xff] {
            let mut damaged = archive.clone();
            damaged[at] = byte;
            let mut reader = Reader::new(damaged.as_slice());
            while let Ok(Some(_)) = reader.next_member() {}
        }
    }
}

/// A header of GNU's own with these pieces, and whether a block of the map follows.
fn own(pieces: &[(u64, u64)], size: u64, stored: u64, more: bool) -> [u8; BLOCK] {
    let mut sparse = file(b"sparse");
    (sparse.kind, sparse.size) = (kind::GNU_SPARSE, stored);
    let mut own = header(&sparse, &mut Vec::new());
    entries(&mut own[386..], pieces);
    own[482] = u8::from(more);
    own[483..494].copy_from_slice(format!("{size:011o}").as_bytes());
    own[CHECKSUM].fill(b' ');
    let sum: u32 = own.iter().map(|&byte| u32::from(byte)).sum();
    own[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    own
}

fn entries(block: &mut [u8], pieces: &[(u64, u64)]) {
    for (to, (start, len)) in block.chunks_mut(24).zip(pieces) {
        to.copy_from_slice(format!("{start:011o}\0{len:011o}\0").as_bytes());
    }
}

#[test]
fn holes_are_read_from_headers_of_gnu() {
    let pieces: Vec<(u64, u64)> = (0..30).map(|i| (i * 1024, 512)).collect();
    let mut archive = own(&pieces[..4], 1 << 20, 30 * 512, true).to_vec();
    let mut map = [0; BLOCK];
    entries(&mut map, &pieces[4..25]);
    map[504] = 1;
    archive.extend(map);
    let mut map = [0; BLOCK];
    entries(&mut map, &pieces[25..]);
    archive.extend(map);
    archive.extend([9; 30 * 512]);
    let right = pieces.iter().map(|&(start, len)| piece(start, len));
    let read = holed(&archive);
    assert_eq!(
        read,
        (
            b"sparse".to_vec(),
            1 << 20,
            Some(right.collect()),
            vec![9; 30 * 512]
        )
    );
    // A map that never ends is no reason to read for ever, or to keep it.
    for byte in [0, b'1'] {
        let endless = own(&[], 0, 0, true);
        let endless = Stream(endless.as_slice().chain(Endless(byte, 0)));
        let said = Reader::new(endless).next_member().unwrap_err().to_string();
        assert_eq!(said, "a map of a sparse file that does not end");
    }
}

/// Blocks of a map, each with another one after it.
struct Endless(u8, usize);

impl Read for Endless {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        for byte in &mut *buf {
            *byte = if self.1 % BLOCK == 504 { 1 } else { self.0 };
            self.1 += 1;
        }
        Ok(buf.len())
    }
}

#[test]
fn an_archive_without_members_is_zeros_to_its_end() {
    let read = |bytes: &[u8]| Reader::new(bytes).next_member();
    for len in [BLOCK, 2 * BLOCK, 10_240, 1 << 20] {
        assert_eq!(read(&vec![0; len]).unwrap(), None, "{len}");
    }
    let mut image = vec![0; 1 << 20];
    image[(1 << 20) - 1] = 1;
    for bytes in [&[][..], &image, &vec![0; 20 << 20]] {
        assert!(read(bytes).is_err(), "{} bytes", bytes.len());
    }
    // Behind the mark of an archive with members may be anything.
    let mut archive = Vec::new();
    let mut writer = Writer::new(&mut archive);
    writer.append(&file(b"f"), &[][..]).unwrap();
    writer.finish().unwrap();
    archive.extend([1; 700]);
    let mut reader = Reader::new(archive.as_slice());
    assert!(reader.next_member().unwrap().is_some());
    assert_eq!(reader.next_member().unwrap(), None);
}
