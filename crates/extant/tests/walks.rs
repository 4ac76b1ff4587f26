//! Walks over trees that change, and that are deeper than a path is long.

use extant::testing::filesystem;
use extant::{Cred, Error, Filesystem};
use extant_testkit::Result;

const SIZE: u64 = 16 << 20;

/// A walk goes where the directory is that it has returned, and through no link that took its name.
#[test]
fn a_link_in_the_place_of_a_directory_leads_nowhere() -> Result<()> {
    let fs = filesystem(SIZE)?;
    fs.create_dir_all("/top/dir")?;
    fs.create_dir_all("/secret/inner")?;
    let mut walk = fs.walk_dir("/top")?;
    let dir = walk.next().unwrap()?;
    assert_eq!(dir.name(), "dir");
    fs.rename("/top/dir", "/moved")?;
    fs.symlink("/secret", "/top/dir")?;
    let next = walk.next();
    assert!(matches!(next, Some(Err(Error::NotDir))), "{next:?}");
    assert!(walk.next().is_none());
    Ok(())
}

/// One that was moved whole is still walked, by its name in the directory that was listed.
#[test]
fn a_walk_goes_on_below_a_directory_that_was_renamed_above() -> Result<()> {
    let fs = filesystem(SIZE)?;
    fs.create_dir_all("/top/dir/deep/er")?;
    let mut walk = fs.walk_dir("/top")?;
    walk.next().unwrap()?;
    fs.rename("/top", "/elsewhere")?;
    fs.create_dir_all("/top/dir/other")?;
    let names: Vec<_> = walk
        .map(|entry| Ok(entry?.file_name()))
        .collect::<Result<_>>()?;
    assert_eq!(names, ["deep", "er"]);
    Ok(())
}

/// The directories below `/` with these names, one in the other.
fn nested(fs: &Filesystem, names: &[Vec<u8>]) -> Result<()> {
    let (volume, cred) = (fs.volume(), Cred::root());
    let mut dir = volume.root()?;
    for name in names {
        dir = volume.mkdir(&dir, name, 0o755, &cred)?;
    }
    Ok(())
}

#[test]
fn a_tree_may_be_deeper_than_a_path_is_long() -> Result<()> {
    let fs = filesystem(SIZE)?;
    fs.remove_dir("/lost+found")?;
    let names: Vec<Vec<u8>> = (0..40).map(|_| vec![b'x'; 255]).collect();
    nested(&fs, &names)?;
    let mut depth = 0;
    for entry in fs.walk_dir("/")? {
        assert_eq!(entry?.name().len(), 255);
        depth += 1;
    }
    assert_eq!(depth, 40);
    Ok(())
}
