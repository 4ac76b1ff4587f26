//! The structures and constants of the header are those of the sources, byte for byte.

use std::mem::offset_of;

use extant_capi::attributes::{EXTANT_NOFOLLOW, Stat};
use extant_capi::directory::DirEntry;
use extant_capi::filesystem::{EXTANT_WRITE, StatFs};
use extant_capi::maker::{EXTANT_MKFS_FORCE, MkfsOptions};
use extant_capi::queue::{Completion, EXTANT_READ_OP, EXTANT_WRITE_OP, Request};
use extant_testkit::{Cmd, Need, TempDir, need};

use crate::crate_dir;

/// A C expression and the value that it must have.
type Expected = Vec<(String, usize)>;

macro_rules! layout {
    ($all:ident, $c:literal, $rust:ty, $($field:ident)*) => {
        $all.push((format!("sizeof(struct {})", $c), size_of::<$rust>()));
        $($all.push((
            format!("offsetof(struct {}, {})", $c, stringify!($field)),
            offset_of!($rust, $field),
        ));)*
    };
}

fn expected() -> Expected {
    let mut all = Expected::new();
    layout!(all, "extant_mkfs_options", MkfsOptions, struct_size flags block_size inode_size
        journal_mib bytes_per_inode inodes label features uuid root_uid root_gid);
    layout!(all, "extant_statfs", StatFs, block_size name_max blocks blocks_free blocks_available
        inodes inodes_free uuid);
    layout!(all, "extant_stat", Stat, ino size blocks mode nlink uid gid rdev block_size generation
        has_btime atime mtime ctime btime);
    layout!(all, "extant_dirent", DirEntry, ino kind name_len name);
    layout!(all, "extant_request", Request<'_>, file buf len pos tag op);
    layout!(all, "extant_completion", Completion, tag result);
    for (name, value) in [
        ("EXTANT_WRITE", EXTANT_WRITE),
        ("EXTANT_MKFS_FORCE", EXTANT_MKFS_FORCE),
        ("EXTANT_NOFOLLOW", EXTANT_NOFOLLOW),
        ("EXTANT_READ_OP", EXTANT_READ_OP),
        ("EXTANT_WRITE_OP", EXTANT_WRITE_OP),
    ] {
        all.push((name.to_owned(), usize::try_from(value).unwrap()));
    }
    all
}

#[test]
fn structures_and_constants_agree() {
    if !need(&[Need::Tool("gcc")]) {
        return;
    }
    let dir = TempDir::new("layouts").unwrap();
    let (source, program) = (dir.join("layouts.c"), dir.join("layouts"));
    let mut text = "#include <stdio.h>\n#include \"extant.h\"\nint main(void)\n{\n".to_owned();
    for (expression, _) in expected() {
        text += &format!("    printf(\"%zu\\n\", (size_t)({expression}));\n");
    }
    std::fs::write(&source, text + "}\n").unwrap();
    let compiled = Cmd::new("gcc").arg("-I").arg(crate_dir().join("include"));
    compiled.arg(&source).arg("-o").arg(&program).ok().unwrap();
    let printed = Cmd::new(&program).ok().unwrap().out;
    let values = printed.lines().map(|line| line.parse::<usize>().unwrap());
    let found: Expected = expected().into_iter().map(|(e, _)| e).zip(values).collect();
    assert_eq!(found, expected());
}

/// A field that the sources have and the table of this test does not would go unseen.
#[test]
fn the_table_has_every_field_of_the_header() {
    let header = std::fs::read_to_string(crate_dir().join("include/extant.h")).unwrap();
    let fields = header
        .lines()
        .filter(|line| line.starts_with("    ") && line.contains(';'));
    let offsets = expected()
        .iter()
        .filter(|(e, _)| e.starts_with("offsetof"))
        .count();
    assert_eq!(fields.count(), offsets);
}
